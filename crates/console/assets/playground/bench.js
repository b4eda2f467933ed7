// Runs a tool: its arguments, the call and its result.

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
  const anyway = make('button', { id: 'anyway', formNoValidate: true, className: 'quiet small', textContent: 'Run anyway', hidden: true });
  const report = (text) => { problem.textContent = text; anyway.hidden = true; };

  // The form and the JSON text show the same arguments; the one edited last counts.
  const form = whole(read('schema') ?? {}, () => {
    try { raw.value = indented(form.get()); report(''); } catch (error) { report(error.message); }
  });
  // The arguments as written, if they are an object.
  const written = () => {
    const text = raw.value.trim() || '{}';
    try { JSON.parse(text); } catch (error) { throw new Error(`no JSON: ${error.message}`); }
    if (!isObjectText(text)) throw new Error('arguments must be an object, as in {"name": "value"}');
    return compact(text);
  };
  // While the text is not valid JSON, the form is inert: it would overwrite what it cannot read.
  const fields = document.getElementById('fields');
  const wrongText = makeRequiredHint('raw', 'arguments');
  wrongText.at(raw);
  raw.after(wrongText.box);
  raw.setAttribute('aria-describedby', wrongText.box.id);
  const take = () => {
    report('');
    wrongText.show('');
    try { form.set(written()); fields.inert = false; } catch (error) { fields.inert = true; wrongText.show(error.message); }
  };
  fields.append(form.box);
  take();
  raw.addEventListener('input', take);

  let current = null;
  let giveUp = new AbortController();
  // Only one call runs at a time, because Cancel, progress and server requests belong to one call.
  let isRunning = false;
  const busy = (is) => {
    isRunning = is;
    run.disabled = is;
    run.textContent = is ? 'Running …' : 'Run';
    bench.toggleAttribute('data-running', is);
    list();
  };
  run.removeAttribute('data-busy');
  bench.addEventListener('keydown', (event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); bench.requestSubmit(); } });
  // Until the server is ready there is no call to cancel; the signal prevents it.
  cancel.addEventListener('click', () => {
    cancel.disabled = true;
    giveUp.abort();
    if (current !== null) client.cancel(current).catch((error) => report(error.message));
  });

  // If required fields are empty, each field shows it, and the call is not made. A button makes it anyway, to see the
  // server's response. Repeating an earlier call is not checked.
  problem.after(anyway);
  const isWhole = () => {
    const missing = fields.inert ? [] : form.missing();
    if (!missing.length) return true;
    report(missing.length > 1 ? `${missing[0].why}, and ${missing.length - 1} more` : missing[0].why);
    anyway.hidden = false;
    missing[0].focus();
    return false;
  };

  bench.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (isRunning || event.submitter !== anyway && !isWhole()) return;
    // The arguments of this call; edits during the call apply to the next one.
    const text = raw.value;
    let args;
    try { args = written(); } catch (error) { wrongText.show(error.message); raw.focus(); return; }
    report('');
    busy(true);
    giveUp = new AbortController();
    const { signal } = giveUp;
    Object.assign(cancel, { hidden: false, disabled: false });
    const progress = runProgress(server, question, client, report);
    progress.say(client.session ? 'Running …' : `Waiting until ${visible(server)} is ready …`);
    outcome.replaceChildren(...progress.parts);
    // With one column, the result appears far below the button.
    const place = look();
    const began = performance.now();
    const hadSession = Boolean(client.session);
    let ready = began;
    let sent = null;
    let state = 'failed';
    try {
      const answer = await client.call(tool, args, progress.onMessage, (id, request) => {
        sent = request;
        current = id;
        ready = performance.now();
        progress.say('Running …');
      }, signal);
      const took = performance.now() - began;
      const result = answer.message.result;
      const failed = Boolean(answer.message.error) || result?.isError === true;
      state = answer.message.error ? 'error' : failed ? 'failed' : 'done';
      const box = make('div', { className: 'result' }, failed ? badge('bad', answer.message.error ? 'error' : 'the tool reports a failure') : badge('ok', 'done'));
      if (answer.message.error) box.append(make('pre', { className: 'error', textContent: visible(`${answer.message.error.message} (${answer.message.error.code})`) }));
      if (answer.message.error?.data !== undefined) box.append(longText(visible(indented(inside(inside(answer.text, 'error'), 'data'))), 'block', withLinks));
      (Array.isArray(result?.content) ? result.content : []).forEach((part) => box.append(shown(part)));
      if (isObject(result) && !Array.isArray(result.content) && result.structuredContent === undefined) box.append(block(indented(inside(answer.text, 'result'))));
      if (result?.structuredContent !== undefined) box.append(make('details', {}, make('summary', { textContent: 'Structured content' }), block(indented(inside(inside(answer.text, 'result'), 'structuredContent')))));
      const opened = hadSession ? '' : `connecting ${milliseconds(ready - began)} · `;
      const times = make('p', { className: 'muted', id: 'times', textContent: `${opened}${milliseconds(took)} in the browser` });
      box.append(times, ...progress.messages(), ...said(sent, answer.text, args));
      outcome.replaceChildren(box);
      // Do not scroll if the user has scrolled in the meantime.
      if (scrollY === place) look();
      split(times, opened, took, answer.message.id);
    } catch (error) {
      state = signal.aborted ? 'cancelled' : 'failed';
      const why = signal.aborted ? make('p', {}, badge('idle', 'cancelled'), sent ? '' : ' before the call,', ` after ${milliseconds(performance.now() - began)}`) : make('pre', { className: 'error', textContent: visible(error.message) });
      outcome.replaceChildren(why, ...progress.messages(), ...(sent ? said(sent, '', args) : [connecting()].filter(Boolean)));
      client.leave();
    } finally {
      current = null;
      question.replaceChildren();
      cancel.hidden = true;
      busy(false);
      remember({ tool: full, harm: bench.dataset.harm, text, state, took: performance.now() - began });
    }
  });

  // Connects a server without leaving the page, so that the arguments are kept.
  const connector = () => document.querySelector('#of form');
  async function connect(event) {
    if (event.target !== connector()) return;
    event.preventDefault();
    const asking = event.target;
    asking.querySelectorAll('button').forEach((button) => { button.disabled = true; });
    report('Connecting …');
    try {
      const response = await fetch(asking.action, { method: 'POST', body: new URLSearchParams(new FormData(asking)) });
      const flash = new DOMParser().parseFromString(await response.text(), 'text/html').querySelector('.flash, .error');
      report(visible(flash?.textContent.trim() ?? ''));
    } catch (error) { report(error.message); }
    asking.querySelectorAll('button').forEach((button) => { button.disabled = false; });
    refresh();
  }
  document.addEventListener('submit', connect);
  function connecting() {
    if (!connector()) return null;
    const button = make('button', { type: 'button', className: 'small', textContent: `${connector().textContent.trim()} ${visible(server)}` });
    button.addEventListener('click', () => connector()?.requestSubmit());
    return make('p', {}, button);
  }

  function said(request, answer, args) {
    const origin = location.origin;
    const body = `{"name":${JSON.stringify(full)},"arguments":${args}}`;
    const token = document.querySelector('.principal') ? " -H 'Authorization: Bearer <token>'" : '';
    return [
      folded('JSON-RPC request', indented(request)),
      answer ? folded('JSON-RPC response', indented(answer)) : null,
      folded('As curl', `curl -s ${origin}/api/v1/aggregator/tools/call${token} -H 'Content-Type: application/json' -d ${quoted(body)}`),
      folded('As a command', `mcp-aggregator call --url ${origin} ${quoted(full)} ${quoted(args)}`),
    ].filter(Boolean);
  }

  // Next to the form, the result is always visible.
  function look() {
    const isBelow = outcome.getBoundingClientRect().left < bench.getBoundingClientRect().right;
    if (isBelow) outcome.parentElement.scrollIntoView({ block: 'start' });
    return scrollY;
  }

  // The timings of this call, as the service recorded them.
  async function split(times, opened, took, id) {
    const query = new URLSearchParams({ server_id: server, tool_name: tool, source: 'mcp', limit: '20' });
    try {
      const calls = await (await fetch(`/api/v1/aggregator/executions?${query}`)).json();
      const call = calls.find((one) => one.request_id === JSON.stringify(id));
      if (!call?.started_at) return;
      const waited = (micros(call.started_at) - micros(call.submitted_at)) / 1000;
      times.replaceChildren(`${opened}queue and routing ${milliseconds(Math.max(waited, 0))} · on the server ${milliseconds(call.duration_ms ?? 0)} · in the browser ${milliseconds(took)} ·  `, make('a', { href: `/executions/${call.id}`, textContent: 'execution' }));
    } catch { /* the account is not to be had just now; what was measured here stands */ }
  }

  addEventListener('pagehide', () => client.leave());
}
