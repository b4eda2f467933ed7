// A request of a server to the user: its message, and a form for the answer, or an address to open.

function questionForm(server, message, answer, report) {
  const { message: text, requestedSchema: schema, mode, url } = isObject(message.params) ? message.params : {};
  const isElsewhere = mode === 'url';
  const answers = isElsewhere ? null : whole(isObject(schema) ? schema : {}, () => {}, true);
  const reply = (action) => {
    const [first] = action === 'accept' ? answers?.missing() ?? [] : [];
    if (first) { report(first.why); first.focus(); return; }
    let content;
    try { content = action === 'accept' && answers ? `,"content":${answers.get()}` : ''; } catch (error) { report(error.message); return; }
    box.remove();
    // As written: numbers are not parsed and encoded again.
    answer(`{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":{"action":"${action}"${content}}}`);
  };
  const button = (word, action, className) => {
    const it = make('button', { type: action === 'accept' ? 'submit' : 'button', className, textContent: word });
    if (action !== 'accept') it.addEventListener('click', () => reply(action));
    return it;
  };
  const box = make('form', { className: 'card' },
    make('h3', { textContent: `${visible(server)} asks` }),
    make('p', { className: 'words', textContent: visible(String(text ?? '')) }),
    make('p', { className: 'hint', textContent: `This request comes from the server and is not verified. ${isElsewhere ? 'Check the address before you open it.' : 'Do not enter passwords.'}` }),
    isElsewhere ? make('p', {}, make('code', { textContent: visible(String(url ?? '')) })) : answers.box,
    make('div', { className: 'actions' }, isElsewhere ? opening(url, () => reply('accept')) : button('Answer', 'accept', ''), button('Decline', 'decline', 'quiet'), button('Dismiss', 'cancel', 'quiet')));
  box.addEventListener('submit', (event) => { event.preventDefault(); reply('accept'); });
  return box;
}

// Opens an address in a new tab, if its scheme is allowed. Opening it is the user's consent.
function opening(url, opened) {
  if (!/^https?:\/\//i.test(url) || !URL.canParse(url)) return make('span', { className: 'hint', textContent: 'This address cannot be opened here.' });
  const link = make('a', { className: 'button', href: url, rel: 'noopener noreferrer', target: '_blank', textContent: `Open ${visible(new URL(url).host)}` });
  link.addEventListener('click', () => setTimeout(opened));
  return link;
}
