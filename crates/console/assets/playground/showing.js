// Results, as people read them.

const pictures = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const most = 200000;
// Browsers take a word of many thousand letters badly; in pieces, cut at ends of lines where there are any, they do not.
function pieces(text) {
  const all = [];
  for (let at = 0; at < text.length;) {
    let end = Math.min(at + 4000, text.length);
    const line = end < text.length ? text.lastIndexOf('\n', end - 1) + 1 : end;
    if (line > at) end = line;
    all.push(make('span', { className: 'piece', textContent: text.slice(at, end) }));
    at = end;
  }
  return all;
}
function longText(text, className) {
  const pre = make('pre', { className, tabIndex: 0 }, ...pieces(text.slice(0, most)));
  if (text.length <= most) return pre;
  const link = make('a', { href: URL.createObjectURL(new Blob([text], { type: 'text/plain' })), download: 'result.txt', textContent: `Save all ${text.length} characters` });
  return make('div', {}, pre, make('p', { className: 'hint' }, `The first ${most} are shown. `, link));
}
const block = (text) => longText(visible(text), 'block');
const badge = (tone, word) => make('span', { className: `badge ${tone}` }, make('i'), word);
const milliseconds = (span) => (span < 1 ? `${(span * 1000).toFixed(0)} µs` : span < 1000 ? `${span.toFixed(1)} ms` : `${(span / 1000).toFixed(1)} s`);

function shown(part) {
  if (!isObject(part)) return block(JSON.stringify(part));
  if (part.type === 'text') {
    const text = String(part.text ?? '');
    return block(/^\s*[[{]/.test(text) ? indented(text) : text);
  }
  if (part.type === 'image' && pictures.includes(part.mimeType) && /^[A-Za-z0-9+/=\s]*$/.test(part.data ?? '')) {
    return make('img', { src: `data:${part.mimeType};base64,${part.data}`, alt: 'an image the tool sent' });
  }
  if (part.type === 'resource_link') {
    const uri = String(part.uri ?? '');
    const name = visible(String(part.title ?? part.name ?? uri));
    const link = /^https?:\/\//i.test(uri) ? make('a', { href: uri, rel: 'noopener noreferrer', target: '_blank', textContent: visible(uri) }) : make('code', { textContent: visible(uri) });
    return make('p', {}, `${name}: `, link);
  }
  if (part.type === 'resource' && typeof part.resource?.text === 'string') {
    return make('div', {}, make('p', { className: 'muted', textContent: visible(String(part.resource.uri ?? '')) }), block(part.resource.text));
  }
  return block(JSON.stringify(part, (key, value) => (key === 'data' || key === 'blob' ? `… ${String(value).length} characters` : value), 2));
}

const folded = (title, text) => make('details', {}, make('summary', { textContent: title }), copyable(text));
function copyable(text) {
  return make('div', { className: 'copyable' }, longText(text, ''), make('button', { type: 'button', className: 'quiet small', textContent: 'Copy' }));
}
// A member of an object, as it is written.
const inside = (text, key) => new Map(membersOf(text)).get(key) ?? 'null';
// A moment in microseconds, which dates of browsers do not know.
const micros = (text) => Date.parse(text.replace(/\.\d+/, '')) * 1000 + Number((/\.(\d+)/.exec(text)?.[1] ?? '').padEnd(6, '0').slice(0, 6));
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
