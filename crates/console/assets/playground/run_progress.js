// What a server sends while a tool runs: progress, of which only the last is shown, and log messages, which are kept.

const mostLogged = 200;

function runProgress(server, question, client, report) {
  const bar = make('progress', { ariaLabel: 'progress' });
  const words = make('p', { className: 'muted', role: 'status' });
  const lines = make('ol', { className: 'log plain', tabIndex: 0, ariaLabel: 'messages of the server' });
  let count = 0;
  const log = ({ level, logger, data }) => {
    count += 1;
    const text = typeof data === 'string' ? data : JSON.stringify(data) ?? '';
    const line = [level, logger, text.slice(0, 4000)].filter((word) => typeof word === 'string' && word).join(' · ');
    lines.append(make('li', { textContent: visible(line) }));
    if (lines.children.length > mostLogged) lines.firstChild.remove();
    lines.scrollTop = lines.scrollHeight;
    lines.hidden = false;
  };
  lines.hidden = true;
  const onMessage = (message) => {
    const params = isObject(message.params) ? message.params : {};
    if (message.method === 'notifications/progress') {
      const { progress, total, message: text } = params;
      if (typeof total === 'number' && total > 0) Object.assign(bar, { max: total, value: progress });
      words.textContent = visible([text, typeof total === 'number' ? `${progress} of ${total}` : progress].filter((part) => part !== undefined).join(' · '));
    } else if (message.method === 'notifications/message') {
      log(params);
    } else if (message.method === 'elicitation/create') {
      const box = questionForm(server, message, (answer) => client.post(answer).catch((error) => report(error.message)), report);
      question.append(box);
      box.querySelector('input, select, textarea, a, button')?.focus();
    } else if (message.id !== undefined && message.method) {
      client.post({ jsonrpc: '2.0', id: message.id, error: { code: -32601, message: 'the console does not support this request' } }).catch((error) => report(error.message));
    }
  };
  // The log messages, which stay below the result.
  const messages = () => {
    if (!count) return [];
    const title = count > mostLogged ? `Messages during the run (the last ${mostLogged} of ${count})` : `Messages during the run (${count})`;
    return [make('details', { open: true }, make('summary', { textContent: title }), lines)];
  };
  return { parts: [bar, words, lines], say: (text) => { words.textContent = text; }, onMessage, messages };
}
