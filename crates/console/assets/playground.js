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

// --- Forms -----------------------------------------------------------------------------------------------------------

// A field for a schema. `get` gives its value or undefined, `set` shows one.
function field(schema, name, required, changed) {
  const id = `field-${counter += 1}`;
  const said = isObject(schema) ? schema : {};
  const kind = Array.isArray(said.type) ? said.type.find((word) => word !== 'null') : said.type;
  const label = make('label', { htmlFor: id }, name, ' ', make('span', { className: 'hint', textContent: [required ? 'required' : '', said.title ?? '', said.description ?? ''].filter(Boolean).join(' · ') }));
  const choices = said.enum ?? (Array.isArray(said.oneOf) && said.oneOf.every((one) => isObject(one) && 'const' in one) ? said.oneOf.map((one) => one.const) : null);
  const titles = said.enumNames ?? (said.enum ? null : said.oneOf?.map((one) => one.title));
  if (kind === 'object' && isObject(said.properties) && !choices) return group(said, name, required, changed);
  const box = make('div', { className: 'field' });
  let input;
  let get;
  let set;
  if (Array.isArray(choices)) {
    input = make('select', { id });
    if (!required) input.append(make('option', { value: '', textContent: '–' }));
    choices.forEach((choice, at) => input.append(make('option', { value: String(at), textContent: titles?.[at] ?? (typeof choice === 'string' ? choice : JSON.stringify(choice)) })));
    get = () => (input.value === '' ? undefined : choices[Number(input.value)]);
    set = (value) => { const at = choices.findIndex((choice) => JSON.stringify(choice) === JSON.stringify(value)); input.value = at < 0 ? '' : String(at); };
  } else if (kind === 'boolean') {
    input = make('select', { id }, required ? null : make('option', { value: '', textContent: '–' }), make('option', { value: 'true', textContent: 'true' }), make('option', { value: 'false', textContent: 'false' }));
    get = () => (input.value === '' ? undefined : input.value === 'true');
    set = (value) => { input.value = typeof value === 'boolean' ? String(value) : ''; };
  } else if (kind === 'number' || kind === 'integer') {
    input = make('input', { id, type: 'number', step: kind === 'integer' ? '1' : 'any' });
    if (typeof said.minimum === 'number') input.min = said.minimum;
    if (typeof said.maximum === 'number') input.max = said.maximum;
    get = () => (input.value === '' ? undefined : Number(input.value));
    set = (value) => { input.value = typeof value === 'number' ? value : ''; };
  } else if (kind === 'string') {
    const long = (said.maxLength ?? 0) > 200 || /text|body|content|query|code|message/i.test(name);
    input = long ? make('textarea', { id, rows: 3 }) : make('input', { id, type: { email: 'email', date: 'date' }[said.format] ?? 'text' });
    let touched = required;
    input.addEventListener('input', () => { touched = true; });
    get = () => (input.value === '' && !touched ? undefined : input.value === '' && !required ? undefined : input.value);
    set = (value) => { input.value = typeof value === 'string' ? value : value === undefined ? '' : JSON.stringify(value); };
  } else {
    input = make('textarea', { id, rows: 3, spellcheck: false, placeholder: kind === 'array' ? '[]' : 'JSON' });
    get = () => {
      if (input.value.trim() === '') return undefined;
      try { input.setCustomValidity(''); return JSON.parse(input.value); } catch (error) { input.setCustomValidity(`no JSON: ${error.message}`); throw new Error(`${name}: this is no JSON`); }
    };
    set = (value) => { input.value = value === undefined ? '' : JSON.stringify(value, null, 1); };
  }
  input.addEventListener('input', changed);
  box.append(label, input);
  if (said.default !== undefined) set(said.default);
  return { box, get, set };
}

// Fields for all members of an object. Members that the schema does not name are kept as they are.
function group(schema, name, required, changed) {
  const box = name ? make('fieldset', {}, make('legend', { textContent: name })) : make('div');
  const must = Array.isArray(schema.required) ? schema.required : [];
  const members = Object.entries(isObject(schema.properties) ? schema.properties : {}).map(([key, member]) => [key, field(member, key, must.includes(key), changed)]);
  members.forEach(([, member]) => box.append(member.box));
  let others = {};
  const get = () => {
    const entries = members.map(([key, member]) => [key, member.get()]).filter(([, value]) => value !== undefined);
    const all = { ...others };
    entries.forEach(([key, value]) => Object.defineProperty(all, key, { value, enumerable: true, writable: true, configurable: true }));
    return !name || required || Object.keys(all).length ? all : undefined;
  };
  const set = (value) => {
    const given = isObject(value) ? value : {};
    members.forEach(([key, member]) => member.set(Object.hasOwn(given, key) ? given[key] : undefined));
    others = Object.fromEntries(Object.entries(given).filter(([key]) => !members.some(([known]) => known === key)));
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
    const response = await fetch(this.path, { method: 'POST', headers, body: JSON.stringify(message), signal });
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
    const id = this.next++;
    const request = { jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args, _meta: { progressToken: id } } };
    begun(request);
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
const block = (text) => make('pre', { className: 'block', tabIndex: 0, textContent: text.length > 200000 ? `${text.slice(0, 200000)}\n… ${text.length - 200000} characters more` : text });
const badge = (tone, word) => make('span', { className: `badge ${tone}` }, make('i'), word);
const milliseconds = (span) => (span < 1 ? `${(span * 1000).toFixed(0)} µs` : span < 1000 ? `${span.toFixed(1)} ms` : `${(span / 1000).toFixed(1)} s`);
const indented = (text) => { try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; } };

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
  return make('div', { className: 'copyable' }, make('pre', { tabIndex: 0, textContent: text }), make('button', { type: 'button', className: 'quiet small', textContent: 'Copy' }));
}
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
    try { raw.value = JSON.stringify(form.get(), null, 2); tell(''); } catch (error) { tell(error.message); }
  });
  const take = () => { try { form.set(JSON.parse(raw.value || '{}')); tell(''); } catch (error) { tell(`no JSON: ${error.message}`); } };
  document.getElementById('fields').append(form.box);
  take();
  raw.addEventListener('input', take);

  let current = null;
  cancel.addEventListener('click', () => { if (current !== null) { cancel.disabled = true; client.cancel(current).catch((error) => tell(error.message)); } });

  bench.addEventListener('submit', async (event) => {
    event.preventDefault();
    let args;
    try { args = JSON.parse(raw.value || '{}'); } catch (error) { tell(`no JSON: ${error.message}`); raw.focus(); return; }
    tell('');
    Object.assign(cancel, { hidden: false, disabled: false });
    const bar = make('progress', { ariaLabel: 'progress' });
    const words = make('p', { className: 'muted', textContent: 'Running …', role: 'status' });
    outcome.replaceChildren(bar, words);
    const began = performance.now();
    let sent = null;
    let state = 'failed';
    try {
      const answer = await client.call(tool, args, (message) => hear(message, bar, words), (request) => { sent = request; current = request.id; });
      const took = performance.now() - began;
      const result = answer.message.result;
      const failed = Boolean(answer.message.error) || result?.isError === true;
      state = answer.message.error ? 'error' : failed ? 'failed' : 'done';
      const box = make('div', { className: 'result' }, failed ? badge('bad', answer.message.error ? 'error' : 'the tool says it failed') : badge('ok', 'done'));
      if (answer.message.error) box.append(make('pre', { className: 'error', textContent: `${answer.message.error.message} (${answer.message.error.code})` }));
      (Array.isArray(result?.content) ? result.content : []).forEach((part) => box.append(shown(part)));
      if (result?.structuredContent !== undefined) box.append(make('details', {}, make('summary', { textContent: 'Structured content' }), block(JSON.stringify(result.structuredContent, null, 2))));
      const times = make('p', { className: 'muted', id: 'times', textContent: `${milliseconds(took)} seen from here` });
      box.append(times, ...said(sent, answer.text, args));
      outcome.replaceChildren(box);
      split(times, took);
    } catch (error) {
      outcome.replaceChildren(make('pre', { className: 'error', textContent: error.message }), ...(sent ? said(sent, '', args) : []));
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
    const body = JSON.stringify({ name: full, arguments: args });
    const token = document.querySelector('.principal') ? " -H 'Authorization: Bearer <token>'" : '';
    const parts = [
      folded('JSON-RPC as sent', JSON.stringify(request, null, 2)),
      answer ? folded('JSON-RPC as answered', indented(answer)) : null,
      folded('As curl', `curl -s ${origin}/api/v1/aggregator/tools/call${token} -H 'Content-Type: application/json' -d ${quoted(body)}`),
      folded('As a command', `mcp-aggregator call ${quoted(full)} ${quoted(JSON.stringify(args))}`),
    ].filter(Boolean);
    parts.forEach((part) => part.querySelectorAll('.copyable button').forEach((button) => { button.setAttribute('data-copy', ''); }));
    return parts;
  }

  // Where the time went, as the service's account has it.
  async function split(times, took) {
    const query = new URLSearchParams({ server_id: server, tool_name: tool, limit: '1' });
    try {
      const [call] = await (await fetch(`/api/v1/aggregator/executions?${query}`)).json();
      if (!call?.started_at) return;
      const waited = new Date(call.started_at) - new Date(call.submitted_at);
      const there = call.duration_ms ?? 0;
      times.replaceChildren(`waiting and routing ${milliseconds(Math.max(waited, 0))} · at the server ${milliseconds(there)} · seen from here ${milliseconds(took)} · `, make('a', { href: `/executions/${call.id}`, textContent: 'execution' }));
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
    const answers = group(isObject(schema) ? schema : {}, '', true, () => {});
    const reply = (action) => {
      let content;
      try { content = action === 'accept' ? answers.get() : undefined; } catch (error) { tell(error.message); return; }
      box.remove();
      client.post({ jsonrpc: '2.0', id: message.id, result: content === undefined ? { action } : { action, content } }).catch((error) => tell(error.message));
    };
    const button = (word, action, className) => { const it = make('button', { type: action === 'accept' ? 'submit' : 'button', className, textContent: word }); if (action !== 'accept') it.addEventListener('click', () => reply(action)); return it; };
    const box = make('form', { className: 'card' }, make('h3', { textContent: `${server} asks` }), make('p', { textContent: String(text ?? '') }), make('p', { className: 'hint', textContent: 'Nobody has checked who wants to know. Give no passwords.' }), answers.box,
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
      make('td', {}, make('code', { textContent: entry.text.replace(/\s+/g, ' ').slice(0, 120) })), make('td', {}, badge(entry.state === 'done' ? 'ok' : 'bad', entry.state)), make('td', { className: 'n', textContent: milliseconds(entry.took) }), make('td', {}, again));
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
