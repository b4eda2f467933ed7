// The bench: a tool, its arguments, what comes of a call, and what its server wants to know meanwhile.

function open() {
  const server = read('server');
  const tool = read('tool');
  const full = bench.dataset.name;
  const raw = document.getElementById('raw');
  const problem = document.getElementById('problem');
  const outcome = document.getElementById('outcome');
  const question = document.getElementById('question');
  const run = document.getElementById('run');
  const cancel = document.getElementById('cancel');
  const client = new Client(`/mcp/${encodeURIComponent(server)}`);
  const tell = (text) => { problem.textContent = text; };

  // Form and text say the same; who was touched last is right.
  const form = group(read('schema') ?? {}, '', true, () => {
    try { raw.value = indented(form.get()); tell(''); } catch (error) { tell(error.message); }
  });
  // The arguments as they are written, if they are an object.
  const written = () => {
    const text = raw.value.trim() || '{}';
    try { JSON.parse(text); } catch (error) { throw new Error(`no JSON: ${error.message}`); }
    if (!isObjectText(text)) throw new Error('arguments must be an object, as in {"name": "value"}');
    return compact(text);
  };
  const take = () => { try { form.set(written()); tell(''); } catch (error) { tell(error.message); } };
  document.getElementById('fields').append(form.box);
  take();
  raw.addEventListener('input', take);

  let current = null;
  let isCancelled = false;
  // One call at a time: Cancel, progress and questions are those of one.
  let isRunning = false;
  const busy = (is) => {
    isRunning = is;
    run.disabled = is;
    run.textContent = is ? 'Running …' : 'Run';
    bench.toggleAttribute('data-running', is);
    list();
  };
  run.removeAttribute('data-busy');
  raw.addEventListener('keydown', (event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); bench.requestSubmit(); } });
  cancel.addEventListener('click', () => { if (current !== null) { isCancelled = true; cancel.disabled = true; client.cancel(current).catch((error) => tell(error.message)); } });

  bench.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (isRunning) return;
    // What is run now; what is typed meanwhile is for the next time.
    const text = raw.value;
    let args;
    try { args = written(); } catch (error) { tell(error.message); raw.focus(); return; }
    tell('');
    busy(true);
    isCancelled = false;
    Object.assign(cancel, { hidden: false, disabled: false });
    const bar = make('progress', { ariaLabel: 'progress' });
    const words = make('p', { className: 'muted', textContent: 'Running …', role: 'status' });
    outcome.replaceChildren(bar, words);
    // On a long form the button is far below the place where the result appears.
    outcome.scrollIntoView({ block: 'nearest' });
    let began = performance.now();
    let sent = null;
    let state = 'failed';
    try {
      const answer = await client.call(tool, args, (message) => hear(message, bar, words), (id, request) => { sent = request; current = id; began = performance.now(); });
      const took = performance.now() - began;
      const result = answer.message.result;
      const failed = Boolean(answer.message.error) || result?.isError === true;
      state = answer.message.error ? 'error' : failed ? 'failed' : 'done';
      const box = make('div', { className: 'result' }, failed ? badge('bad', answer.message.error ? 'error' : 'the tool says it failed') : badge('ok', 'done'));
      if (answer.message.error) box.append(make('pre', { className: 'error', textContent: visible(`${answer.message.error.message} (${answer.message.error.code})`) }));
      if (answer.message.error?.data !== undefined) box.append(block(JSON.stringify(answer.message.error.data, null, 2)));
      (Array.isArray(result?.content) ? result.content : []).forEach((part) => box.append(shown(part)));
      if (isObject(result) && !Array.isArray(result.content) && result.structuredContent === undefined) box.append(block(JSON.stringify(result, null, 2)));
      if (result?.structuredContent !== undefined) box.append(make('details', {}, make('summary', { textContent: 'Structured content' }), block(indented(structured(answer.text)))));
      const times = make('p', { className: 'muted', id: 'times', textContent: `${milliseconds(took)} seen from here` });
      box.append(times, ...said(sent, answer.text, args));
      outcome.replaceChildren(box);
      split(times, took, answer.message.id);
    } catch (error) {
      state = isCancelled ? 'cancelled' : 'failed';
      const why = isCancelled ? make('p', {}, badge('idle', 'cancelled'), ` after ${milliseconds(performance.now() - began)}`) : make('pre', { className: 'error', textContent: visible(error.message) });
      outcome.replaceChildren(why, ...(sent ? said(sent, '', args) : []));
      client.leave();
    } finally {
      current = null;
      question.replaceChildren();
      cancel.hidden = true;
      busy(false);
      remember({ tool: full, text, state, took: performance.now() - began });
    }
  });

  function said(request, answer, args) {
    const origin = location.origin;
    const body = `{"name":${JSON.stringify(full)},"arguments":${args}}`;
    const token = document.querySelector('.principal') ? " -H 'Authorization: Bearer <token>'" : '';
    const parts = [
      folded('JSON-RPC as sent', indented(request)),
      answer ? folded('JSON-RPC as answered', indented(answer)) : null,
      folded('As curl', `curl -s ${origin}/api/v1/aggregator/tools/call${token} -H 'Content-Type: application/json' -d ${quoted(body)}`),
      folded('As a command', `mcp-aggregator call --url ${origin} ${quoted(full)} ${quoted(args)}`),
    ].filter(Boolean);
    parts.forEach((part) => part.querySelectorAll('.copyable button').forEach((button) => { button.setAttribute('data-copy', ''); }));
    return parts;
  }

  // Where the time went, as the service's account of this very call has it.
  async function split(times, took, id) {
    const query = new URLSearchParams({ server_id: server, tool_name: tool, source: 'mcp', limit: '20' });
    try {
      const calls = await (await fetch(`/api/v1/aggregator/executions?${query}`)).json();
      const call = calls.find((one) => one.request_id === JSON.stringify(id));
      if (!call?.started_at) return;
      const waited = (micros(call.started_at) - micros(call.submitted_at)) / 1000;
      times.replaceChildren(`waiting and routing ${milliseconds(Math.max(waited, 0))} · at the server ${milliseconds(call.duration_ms ?? 0)} · seen from here ${milliseconds(took)} · `, make('a', { href: `/executions/${call.id}`, textContent: 'execution' }));
    } catch { /* the account is not to be had just now; what was measured here stands */ }
  }

  function hear(message, bar, words) {
    if (message.method === 'notifications/progress') {
      const { progress, total, message: text } = message.params ?? {};
      if (typeof total === 'number' && total > 0) Object.assign(bar, { max: total, value: progress });
      words.textContent = visible([text, typeof total === 'number' ? `${progress} of ${total}` : progress].filter((part) => part !== undefined).join(' · '));
    } else if (message.method === 'notifications/message') {
      words.textContent = visible(typeof message.params?.data === 'string' ? message.params.data : JSON.stringify(message.params?.data) ?? '');
    } else if (message.method === 'elicitation/create') {
      ask(message);
    } else if (message.id !== undefined && message.method) {
      client.post({ jsonrpc: '2.0', id: message.id, error: { code: -32601, message: 'the console cannot do that' } }).catch((error) => tell(error.message));
    }
  }

  // A server wants to know something: its question, and a form for the answer.
  function ask(message) {
    const { message: text, requestedSchema: schema } = message.params ?? {};
    const answers = group(isObject(schema) ? schema : {}, '', true, () => {}, true);
    const reply = (action) => {
      let content;
      try { content = action === 'accept' ? `,"content":${answers.get()}` : ''; } catch (error) { tell(error.message); return; }
      box.remove();
      // As it was written: numbers are not read and written again.
      client.post(`{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":{"action":"${action}"${content}}}`).catch((error) => tell(error.message));
    };
    const button = (word, action, className) => { const it = make('button', { type: action === 'accept' ? 'submit' : 'button', className, textContent: word }); if (action !== 'accept') it.addEventListener('click', () => reply(action)); return it; };
    const box = make('form', { className: 'card' }, make('h3', { textContent: `${server} asks` }), make('p', { textContent: visible(String(text ?? '')) }), make('p', { className: 'hint', textContent: 'Nobody has checked who wants to know. Give no passwords.' }), answers.box,
      make('div', { className: 'actions' }, button('Answer', 'accept', ''), button('Decline', 'decline', 'quiet'), button('Dismiss', 'cancel', 'quiet')));
    box.addEventListener('submit', (event) => { event.preventDefault(); reply('accept'); });
    question.append(box);
    box.querySelector('input, select, textarea, button')?.focus();
  }

  addEventListener('pagehide', () => client.leave());
}
