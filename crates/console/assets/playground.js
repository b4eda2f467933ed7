// The playground: a form from a schema, in step with raw JSON; and an MCP client that runs it, answers questions, shows
// progress and can be told to stop. Everything that comes from servers is put into the page as text, never as markup.
'use strict';

const bench = document.getElementById('bench');
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
let counter = 0;

// --- JSON ------------------------------------------------------------------------------------------------------------

// Numbers are never read and written again: `1.0` would become `1`, and long ones would lose digits. JSON is cut into its
// signs and put together again instead. Everything here wants JSON that was looked at by `JSON.parse`.
const signs = (text) => text.match(/"(?:\\.|[^"\\])*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
const compact = (text) => signs(text).join('');

function indented(text) {
  try { JSON.parse(text); } catch { return text; }
  let out = '';
  let depth = 0;
  const all = signs(text);
  const line = () => `\n${'  '.repeat(depth)}`;
  all.forEach((sign, at) => {
    if (sign === '{' || sign === '[') {
      const isEmpty = all[at + 1] === '}' || all[at + 1] === ']';
      depth += 1;
      out += isEmpty ? sign : sign + line();
    } else if (sign === '}' || sign === ']') {
      depth -= 1;
      out += all[at - 1] === '{' || all[at - 1] === '[' ? sign : line() + sign;
    } else out += sign === ',' ? sign + line() : sign === ':' ? ': ' : sign;
  });
  return out;
}

// The members of an object, each with its value as it is written.
function membersOf(text) {
  const found = [];
  let depth = 0;
  let key = null;
  let value = '';
  for (const sign of signs(text)) {
    const isOuter = depth === 1;
    if (sign === '}' || sign === ']') depth -= 1;
    if ((isOuter && sign === ',') || depth === 0 && sign === '}') {
      if (key !== null) found.push([key, value]);
      [key, value] = [null, ''];
    } else if (isOuter && key === null) {
      if (sign !== ':') key = JSON.parse(sign);
    } else if (depth > 0 && !(isOuter && sign === ':' && value === '')) value += sign;
    if (sign === '{' || sign === '[') depth += 1;
  }
  return found;
}
const isObjectText = (text) => compact(text).startsWith('{');

// --- Forms -----------------------------------------------------------------------------------------------------------

// A field for a schema. `get` gives its value as JSON or undefined, `set` shows one. A strict one is held back by the browser
// until it is filled in as its schema wants it.
function field(schema, name, required, changed, strict) {
  const id = `field-${counter += 1}`;
  const said = isObject(schema) ? schema : {};
  const kind = Array.isArray(said.type) ? said.type.find((word) => word !== 'null') : said.type;
  const label = make('label', { htmlFor: id }, name, ' ', make('span', { className: 'hint', textContent: visible([required ? 'required' : '', said.title ?? '', said.description ?? ''].filter(Boolean).join(' · ')) }));
  const choices = said.enum ?? (Array.isArray(said.oneOf) && said.oneOf.every((one) => isObject(one) && 'const' in one) ? said.oneOf.map((one) => one.const) : null);
  const titles = said.enumNames ?? (said.enum ? null : said.oneOf?.map((one) => one.title));
  if (kind === 'object' && isObject(said.properties) && !choices) return group(said, name, required, changed, strict);
  const box = make('div', { className: 'field' });
  const usual = said.default === undefined ? '' : `default: ${typeof said.default === 'string' ? said.default : JSON.stringify(said.default)}`;
  const nothing = () => (required ? null : make('option', { value: '', textContent: usual ? `– (${usual})` : '–' }));
  let input;
  let get;
  let set;
  if (Array.isArray(choices)) {
    input = make('select', { id }, nothing());
    choices.forEach((choice, at) => input.append(make('option', { value: String(at), textContent: titles?.[at] ?? (typeof choice === 'string' ? choice : JSON.stringify(choice)) })));
    get = () => (input.value === '' ? undefined : JSON.stringify(choices[Number(input.value)]));
    set = (text) => { const at = text === undefined ? -1 : choices.findIndex((choice) => JSON.stringify(choice) === JSON.stringify(JSON.parse(text))); input.value = at < 0 ? '' : String(at); };
  } else if (kind === 'boolean') {
    input = make('select', { id }, nothing(), make('option', { value: 'true', textContent: 'true' }), make('option', { value: 'false', textContent: 'false' }));
    get = () => (input.value === '' ? undefined : input.value);
    set = (text) => { input.value = text === 'true' || text === 'false' ? text : ''; };
  } else if (kind === 'number' || kind === 'integer') {
    input = make('input', { id, type: 'number', step: kind === 'integer' ? '1' : 'any', placeholder: usual });
    if (typeof said.minimum === 'number') input.min = said.minimum;
    if (typeof said.maximum === 'number') input.max = said.maximum;
    get = () => (input.value === '' ? undefined : /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(input.value) ? input.value : String(Number(input.value)));
    set = (text) => { input.value = /^-?\d/.test(text ?? '') ? text : ''; };
  } else if (kind === 'string') {
    const long = (said.maxLength ?? 0) > 200 || /text|body|content|query|code|message/i.test(name);
    input = long ? make('textarea', { id, rows: 3 }) : make('input', { id, type: { email: 'email', date: 'date', uri: 'url' }[strict ? said.format : ''] ?? 'text' });
    input.placeholder = usual;
    if (strict && said.minLength > 0) input.minLength = said.minLength;
    if (strict && said.maxLength > 0) input.maxLength = said.maxLength;
    get = () => (input.value === '' && !required ? undefined : JSON.stringify(input.value));
    set = (text) => { const value = text === undefined ? '' : JSON.parse(text); input.value = typeof value === 'string' ? value : text; };
  } else {
    input = make('textarea', { id, rows: 3, spellcheck: false, placeholder: usual || (kind === 'array' ? '[]' : 'JSON') });
    get = () => {
      input.setCustomValidity('');
      const text = input.value.trim();
      if (text === '') return undefined;
      try { JSON.parse(text); return compact(text); } catch (error) { input.setCustomValidity(`no JSON: ${error.message}`); throw new Error(`${name}: this is no JSON`); }
    };
    set = (text) => { input.setCustomValidity(''); input.value = text === undefined ? '' : indented(text); };
  }
  input.required = Boolean(strict && required);
  input.addEventListener('input', changed);
  box.append(label, input);
  return { box, get, set };
}

// Fields for all members of an object. Members that the schema does not name are kept as they are.
function group(schema, name, required, changed, strict) {
  const box = name ? make('fieldset', {}, make('legend', { textContent: name })) : make('div');
  const must = Array.isArray(schema.required) ? schema.required : [];
  const members = Object.entries(isObject(schema.properties) ? schema.properties : {}).map(([key, member]) => [key, field(member, key, must.includes(key), changed, strict)]);
  members.forEach(([, member]) => box.append(member.box));
  let others = [];
  const get = () => {
    const all = [...others, ...members.map(([key, member]) => [key, member.get()]).filter(([, value]) => value !== undefined)];
    return !name || required || all.length ? `{${all.map(([key, value]) => `${JSON.stringify(key)}:${value}`).join(',')}}` : undefined;
  };
  const set = (text) => {
    const given = text !== undefined && isObjectText(text) ? membersOf(text) : [];
    // Of two with one name the last counts, as everywhere.
    const byName = new Map(given);
    members.forEach(([key, member]) => member.set(byName.get(key)));
    others = [...byName].filter(([key]) => !members.some(([known]) => known === key));
  };
  return { box, get, set };
}

// --- MCP -------------------------------------------------------------------------------------------------------------

const version = '2025-11-25';
const read = (name) => JSON.parse(bench.dataset[name]);

class Client {
  constructor(path) { this.path = path; this.session = null; this.next = 1; }

  async post(message, signal) {
    const headers = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', 'X-CSRF-Token': csrf };
    if (this.session) Object.assign(headers, { 'Mcp-Session-Id': this.session, 'MCP-Protocol-Version': version });
    const response = await fetch(this.path, { method: 'POST', headers, body: typeof message === 'string' ? message : JSON.stringify(message), signal });
    if (response.status === 401) throw new Error('You are signed out. Sign in in another tab, and run it again here.');
    if (!response.ok) {
      const text = await response.text();
      let why = text;
      try { const told = JSON.parse(text); why = told.error?.message ?? told.detail ?? text; } catch { /* it is no JSON, and stands as it is */ }
      throw new Error(`${response.status}: ${why}`);
    }
    return response;
  }

  async connect() {
    const request = { jsonrpc: '2.0', id: this.next++, method: 'initialize', params: { protocolVersion: version, capabilities: { elicitation: {} }, clientInfo: { name: 'mcp-aggregator console', version: '1' } } };
    const response = await this.post(request);
    this.session = response.headers.get('Mcp-Session-Id');
    await this.messages(response, () => {});
    await this.post({ jsonrpc: '2.0', method: 'notifications/initialized' });
  }

  // Every message of a response, be it one or a stream of them.
  async messages(response, each) {
    if (!(response.headers.get('Content-Type') ?? '').startsWith('text/event-stream')) {
      const text = await response.text();
      if (text) each(JSON.parse(text), text);
      return;
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const events = rest.split(/\r?\n\r?\n/);
      rest = events.pop();
      for (const event of events) {
        const data = event.split(/\r?\n/).filter((line) => line.startsWith('data:')).map((line) => line.slice(5).trimStart()).join('\n');
        if (data) each(JSON.parse(data), data);
      }
    }
  }

  async call(name, args, hear, begun) {
    if (!this.session) await this.connect();
    // Nobody else has this id, so that the service's account of the call can be told from others.
    const id = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
    // What is to be sent stands in the request as it was written.
    const request = `{"jsonrpc":"2.0","id":"${id}","method":"tools/call","params":{"name":${JSON.stringify(name)},"arguments":${args},"_meta":{"progressToken":"${id}"}}}`;
    begun(id, request);
    let answer = null;
    await this.messages(await this.post(request), (message, text) => {
      if (message.id === id && !message.method) answer = { message, text };
      else hear(message);
    });
    if (!answer) throw new Error('the connection ended without an answer');
    return answer;
  }

  cancel(id) {
    return this.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id, reason: 'cancelled in the console' } });
  }

  leave() {
    if (this.session) fetch(this.path, { method: 'DELETE', keepalive: true, headers: { 'Mcp-Session-Id': this.session, 'MCP-Protocol-Version': version, 'X-CSRF-Token': csrf } }).catch(() => {});
  }
}

// --- Showing ---------------------------------------------------------------------------------------------------------

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
    const name = String(part.title ?? part.name ?? uri);
    const link = /^https?:\/\//i.test(uri) ? make('a', { href: uri, rel: 'noopener noreferrer', target: '_blank', textContent: uri }) : make('code', { textContent: uri });
    return make('p', {}, `${name}: `, link);
  }
  if (part.type === 'resource' && typeof part.resource?.text === 'string') {
    return make('div', {}, make('p', { className: 'muted', textContent: String(part.resource.uri ?? '') }), block(part.resource.text));
  }
  return block(JSON.stringify(part, (key, value) => (key === 'data' || key === 'blob' ? `… ${String(value).length} characters` : value), 2));
}

const folded = (title, text) => make('details', {}, make('summary', { textContent: title }), copyable(text));
function copyable(text) {
  return make('div', { className: 'copyable' }, longText(text, ''), make('button', { type: 'button', className: 'quiet small', textContent: 'Copy' }));
}
// The structured content of an answer, as it is written.
const inside = (text, key) => new Map(membersOf(text)).get(key) ?? '{}';
const structured = (answer) => new Map(membersOf(inside(answer, 'result'))).get('structuredContent') ?? 'null';
// A moment in microseconds, which dates of browsers do not know.
const micros = (text) => Date.parse(text.replace(/\.\d+/, '')) * 1000 + Number((/\.(\d+)/.exec(text)?.[1] ?? '').padEnd(6, '0').slice(0, 6));
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// --- The bench -------------------------------------------------------------------------------------------------------

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
  cancel.addEventListener('click', () => { if (current !== null) { isCancelled = true; cancel.disabled = true; client.cancel(current).catch((error) => tell(error.message)); } });

  bench.addEventListener('submit', async (event) => {
    event.preventDefault();
    let args;
    try { args = written(); } catch (error) { tell(error.message); raw.focus(); return; }
    tell('');
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
      if (answer.message.error) box.append(make('pre', { className: 'error', textContent: `${answer.message.error.message} (${answer.message.error.code})` }));
      (Array.isArray(result?.content) ? result.content : []).forEach((part) => box.append(shown(part)));
      if (result?.structuredContent !== undefined) box.append(make('details', {}, make('summary', { textContent: 'Structured content' }), block(indented(structured(answer.text)))));
      const times = make('p', { className: 'muted', id: 'times', textContent: `${milliseconds(took)} seen from here` });
      box.append(times, ...said(sent, answer.text, args));
      outcome.replaceChildren(box);
      split(times, took, answer.message.id);
    } catch (error) {
      state = isCancelled ? 'cancelled' : 'failed';
      const why = isCancelled ? make('p', {}, badge('idle', 'cancelled'), ` after ${milliseconds(performance.now() - began)}`) : make('pre', { className: 'error', textContent: visible(error.message) });
      outcome.replaceChildren(why, ...(sent ? said(sent, '', args) : []));
      client.session = null;
    } finally {
      current = null;
      question.replaceChildren();
      cancel.hidden = true;
      run.disabled = false;
      run.textContent = 'Run';
      remember({ tool: full, text: raw.value, state, took: performance.now() - began });
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
      words.textContent = [text, typeof total === 'number' ? `${progress} of ${total}` : progress].filter((part) => part !== undefined).join(' · ');
    } else if (message.method === 'notifications/message') {
      words.textContent = typeof message.params?.data === 'string' ? message.params.data : JSON.stringify(message.params?.data);
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
      try { content = action === 'accept' ? JSON.parse(answers.get()) : undefined; } catch (error) { tell(error.message); return; }
      box.remove();
      client.post({ jsonrpc: '2.0', id: message.id, result: content === undefined ? { action } : { action, content } }).catch((error) => tell(error.message));
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

// --- History: of this tab only, for arguments may be secret ------------------------------------------------------------

const kept = () => { try { return JSON.parse(sessionStorage.getItem('runs') ?? '[]'); } catch { return []; } };

function remember(entry) {
  const all = [{ ...entry, at: Date.now() }, ...kept()].slice(0, 20);
  try { sessionStorage.setItem('runs', JSON.stringify(all)); } catch { /* there is no room for it, and it is no loss */ }
  list();
}

function list() {
  const section = document.getElementById('history');
  const all = kept();
  if (!section || !all.length) return;
  section.hidden = false;
  section.querySelector('tbody').replaceChildren(...all.map((entry) => {
    const again = make('button', { type: 'button', className: 'quiet small', textContent: 'Run again' });
    again.addEventListener('click', () => {
      if (bench?.dataset.name === entry.tool) {
        const raw = document.getElementById('raw');
        raw.value = entry.text;
        raw.dispatchEvent(new Event('input'));
        bench.requestSubmit();
      } else {
        sessionStorage.setItem('again', JSON.stringify(entry));
        location.href = `/playground?tool=${encodeURIComponent(entry.tool)}`;
      }
    });
    return make('tr', {}, make('td', { className: 'nowrap', textContent: new Date(entry.at).toLocaleTimeString() }), make('th', { scope: 'row', textContent: entry.tool }),
      make('td', {}, make('code', { textContent: entry.text.replace(/\s+/g, ' ').slice(0, 120) })), make('td', {}, badge({ done: 'ok', cancelled: 'idle' }[entry.state] ?? 'bad', entry.state)), make('td', { className: 'n', textContent: milliseconds(entry.took) }), make('td', {}, again));
  }));
}

if (bench) open();
list();
const waiting = sessionStorage.getItem('again');
if (bench && waiting) {
  sessionStorage.removeItem('again');
  const entry = JSON.parse(waiting);
  if (entry.tool === bench.dataset.name) {
    const raw = document.getElementById('raw');
    raw.value = entry.text;
    raw.dispatchEvent(new Event('input'));
    bench.requestSubmit();
  }
}
