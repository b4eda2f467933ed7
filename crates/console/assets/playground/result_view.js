// Renders results for people.

const most = 200000;
// Browsers are slow with very long text nodes, so text is split into pieces, at line ends if possible.
function pieces(text, inWords = (part) => [part]) {
  const all = [];
  for (let at = 0; at < text.length;) {
    let end = Math.min(at + 4000, text.length);
    const line = end < text.length ? text.lastIndexOf('\n', end - 1) + 1 : end;
    if (line > at) end = line;
    all.push(make('span', { className: 'piece' }, ...inWords(text.slice(at, end))));
    at = end;
  }
  return all;
}
function longText(text, className, inWords) {
  const pre = make('pre', { className, tabIndex: 0 }, ...pieces(text.slice(0, most), inWords));
  if (text.length <= most) return pre;
  const link = make('a', { href: URL.createObjectURL(new Blob([text], { type: 'text/plain' })), download: 'result.txt', textContent: `Save all ${text.length} characters` });
  return make('div', {}, pre, make('p', { className: 'hint' }, `The first ${most} are shown. `, link));
}
const block = (text) => longText(visible(text), 'block');
const badge = (tone, word) => make('span', { className: `badge ${tone}` }, make('i'), word);
const milliseconds = (span) => (span < 1 ? `${(span * 1000).toFixed(0)} µs` : span < 1000 ? `${span.toFixed(1)} ms` : `${(span / 1000).toFixed(1)} s`);

const linkTo = (address) => make('a', { href: address, rel: 'noopener noreferrer', target: '_blank', textContent: visible(address) });
// Text with addresses as links. Punctuation at the end of a sentence is not part of the address.
function withLinks(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(/https?:\/\/[^\s<>"'`{}|\\^⟨⟩]+/gi)) {
    const address = found[0].replace(/[.,;:!?*_)\]]+$/, (end) => (end.startsWith(')') && found[0].includes('(') ? ')' : ''));
    if (!URL.canParse(address)) continue;
    parts.push(text.slice(at, found.index), linkTo(address));
    at = found.index + address.length;
  }
  return [...parts, text.slice(at)];
}

// Renders a part of a result. Unknown parts are shown as JSON, with binary data replaced by its length.
function shown(part) {
  if (!isObject(part)) return block(JSON.stringify(part));
  if (part.type === 'text') {
    const text = String(part.text ?? '');
    return copying(longText(visible(/^\s*[[{]/.test(text) ? indented(spelled(text)) : text), 'block', withLinks));
  }
  if ((part.type === 'image' || part.type === 'audio') && isBase64(part.data)) return media(part.data, part.mimeType, part.type);
  if (part.type === 'resource_link') {
    const uri = String(part.uri ?? '');
    const name = visible(String(part.title ?? part.name ?? uri));
    const link = /^https?:\/\//i.test(uri) ? linkTo(uri) : make('code', { textContent: visible(uri) });
    const about = [part.mimeType, typeof part.size === 'number' ? bytes(part.size) : '', part.description].filter((word) => typeof word === 'string' && word);
    return make('p', {}, `${name}: `, link, about.length ? make('span', { className: 'sub', textContent: visible(about.join(' · ').slice(0, 2000)) }) : null);
  }
  if (part.type === 'resource' && isObject(part.resource)) {
    const { uri, text, blob, mimeType } = part.resource;
    const name = make('p', { className: 'muted', textContent: visible(String(uri ?? '')) });
    if (typeof text === 'string') return make('div', {}, name, copying(longText(visible(text), 'block', withLinks)));
    if (isBase64(blob)) return make('div', {}, name, media(blob, mimeType, 'file', uri));
  }
  return block(JSON.stringify(part, (key, value) => (key === 'data' || key === 'blob' ? `… ${String(value).length} characters` : value), 2));
}

const folded = (title, text) => make('details', {}, make('summary', { textContent: title }), copyable(text));
const copyable = (text) => copying(longText(text, ''));
function copying(box) {
  const button = make('button', { type: 'button', className: 'quiet small', textContent: 'Copy' });
  button.setAttribute('data-copy', '');
  return make('div', { className: 'copyable' }, box, button);
}
// A member of an object, as written.
const inside = (text, key) => new Map(membersOf(text)).get(key) ?? 'null';
// A time in microseconds, which the `Date` of browsers does not support.
const micros = (text) => Date.parse(text.replace(/\.\d+/, '')) * 1000 + Number((/\.(\d+)/.exec(text)?.[1] ?? '').padEnd(6, '0').slice(0, 6));
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
