// A server wants to know something: its question, and a form for the answer.

function asked(server, message, answer, tell) {
  const { message: text, requestedSchema: schema } = message.params ?? {};
  const answers = whole(isObject(schema) ? schema : {}, () => {}, true);
  const reply = (action) => {
    const [first] = action === 'accept' ? answers.lacks() : [];
    if (first) { tell(first.why); first.focus(); return; }
    let content;
    try { content = action === 'accept' ? `,"content":${answers.get()}` : ''; } catch (error) { tell(error.message); return; }
    box.remove();
    // As it was written: numbers are not read and written again.
    answer(`{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":{"action":"${action}"${content}}}`);
  };
  const button = (word, action, className) => {
    const it = make('button', { type: action === 'accept' ? 'submit' : 'button', className, textContent: word });
    if (action !== 'accept') it.addEventListener('click', () => reply(action));
    return it;
  };
  const box = make('form', { className: 'card' },
    make('h3', { textContent: `${visible(server)} asks` }),
    make('p', { textContent: visible(String(text ?? '')) }),
    make('p', { className: 'hint', textContent: 'Nobody has checked who wants to know. Give no passwords.' }),
    answers.box,
    make('div', { className: 'actions' }, button('Answer', 'accept', ''), button('Decline', 'decline', 'quiet'), button('Dismiss', 'cancel', 'quiet')));
  box.addEventListener('submit', (event) => { event.preventDefault(); reply('accept'); });
  return box;
}
