// Runs the blocks of a document one after the other, and shows the progress. Every block is a separate run, so that its
// result is in the file and on the page before the next one starts.
'use strict';

const told = document.getElementById('run-status');
const problems = document.getElementById('problems');
const stop = document.getElementById('stop');
const runAll = document.getElementById('run-all');
// The document that the page shows: its version and its blocks. It changes when the page is updated.
const edition = () => document.getElementById('edition')?.dataset ?? {};
// The state of every block that was run from this page: [tone, words, why].
const states = new Map();
// The states belong to one version of the document, and not to other blocks that replace it.
let statesOf = null;
// Identifies blocks by their content and server, regardless of the text around them.
const blocksOf = (page) => JSON.stringify([...page.querySelectorAll('#document .cell')].map((cell) => [cell.querySelector('.cell-head strong')?.textContent, cell.querySelector('pre')?.textContent]));
let current = null;
// On a narrow screen the outline comes before the text and would fill the page.
let isFolded = matchMedia('(max-width: 1000px)').matches;
document.addEventListener('toggle', (event) => { if (event.target.matches('#outline .fold')) isFolded = !event.target.open; }, true);
const rest = document.getElementById('run-rest');

function draw() {
  const known = blocksOf(document) === statesOf ? states : new Map();
  document.querySelectorAll('[data-state]').forEach((place) => {
    const [tone, words] = known.get(place.dataset.state) ?? [];
    if (!tone) { place.replaceChildren(); return; }
    const badge = Object.assign(document.createElement('span'), { className: `badge ${tone}` });
    badge.append(document.createElement('i'), words);
    place.replaceChildren(badge);
  });
  document.querySelectorAll('[data-why]').forEach((place) => {
    place.textContent = known.get(place.dataset.why)?.[2] ?? '';
    place.hidden = !place.textContent;
  });
  document.querySelectorAll('[data-run]').forEach((button) => { button.disabled = current !== null || !button.dataset.run; });
  runAll.disabled = current !== null || !edition().all;
  stop.hidden = current === null;
  told.parentElement.hidden = !told.textContent;
  const fold = document.querySelector('#outline .fold');
  if (fold) fold.open = !isFolded;
}

function say(number, tone, words, why) {
  states.set(String(number), [tone, words, why]);
  draw();
}

function complain(text) {
  const line = Object.assign(document.createElement('pre'), { className: 'error', textContent: text });
  if (text === SIGNED_OUT) line.append(' ', Object.assign(signIn(), { textContent: 'Sign in' }), ' in another tab, then run the rest.');
  if (text.includes('session_limit')) line.append(' ', Object.assign(document.createElement('a'), { href: '/settings', textContent: 'Settings' }));
  problems.append(line);
}

const took = (ms) => (ms == null ? '' : ms < 1000 ? ` in ${ms} ms` : ` in ${(ms / 1000).toFixed(1)} s`);

// Calls a function for every event of a run.
async function events(response, each) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const frames = rest.split('\n\n');
    rest = frames.pop();
    for (const frame of frames) {
      const name = /^event: (.*)$/m.exec(frame)?.[1];
      const data = /^data: (.*)$/m.exec(frame)?.[1];
      if (name && data) each(name, JSON.parse(data));
    }
  }
}

// Reasons to end a run before its last block.
class Halt extends Error {}
const CHANGED = 'The document changed while it ran, so the remaining blocks were not run. The page now shows the current version: check it, then run it.';

const AWAY = 'the service is unreachable. It is unknown whether the tool ran: check before you run it again.';
const SIGNED_OUT = 'You are signed out, so the remaining blocks were not run.';

// Whether the text has changed but its blocks have not: then the run continues with the new text.
async function isOnlyProse(run) {
  const response = await fetch(location.href, { headers: { 'X-Live': '1' }, signal: current.signal });
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  const now = page.getElementById('edition')?.dataset;
  // A long document is shown only in part.
  const isWhole = now?.all && now.all.split(' ').length === page.querySelectorAll('#document .cell').length;
  if (!isWhole || now.version === run.version || blocksOf(page) !== statesOf) return false;
  run.version = now.version;
  return true;
}

// The request names the version that this page shows, because block numbers differ between versions.
async function runOne(number, run, force) {
  const body = { path: told.dataset.path, version: run.version, blocks: [number], save: true, output: 'none', session: run.session, force };
  const response = await fetch('/api/v1/aggregator/documents/run', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'text/event-stream', 'X-CSRF-Token': csrf },
    body: JSON.stringify(body),
    signal: current.signal,
  });
  if (!response.ok) {
    const why = await response.json().catch(() => ({}));
    if (why.error_code === 'DOCUMENT_CHANGED') {
      if (!(await isOnlyProse(run))) throw new Halt(CHANGED);
      return runOne(number, run, force);
    }
    if (response.status === 401) throw new Halt(SIGNED_OUT);
    throw new Error(typeof why.detail === 'string' ? why.detail : why.detail?.map?.((one) => one.msg).join('\n') ?? `refused with ${response.status}`);
  }
  let over = null;
  let written = null;
  await events(response, (name, data) => {
    if (name === 'block.executing') say(number, 'warn', 'running');
    if (name === 'block.finished') over = data;
    if (name === 'document.finished') written = data.blocks?.[0]?.written;
    if (name === 'document.failed') throw new Error(data.detail ?? 'the run failed');
  });
  if (!over) throw new Error('the connection ended before the block finished');
  return { ...over, written };
}

// Server requests cannot be answered here.
const serverRequestHint = (over) => (over.message?.includes('cannot be asked now') ? 'The tool sent a request for you. Run it in the playground to answer.' : undefined);
const reasons = (over) => (over.problem?.faults ?? []).map((fault) => fault.what).join('\n');

async function runBlock(number, run) {
  let over = await runOne(number, run, false);
  if (over.problem?.trouble === 'edited_result') {
    // An edited result is overwritten only after a confirmation.
    if (!confirm(`The result of block ${number} was edited by hand. Replace it?`)) {
      say(number, 'idle', 'not run', 'Its result was edited by hand, and stays as it is.');
      return 'not run';
    }
    over = await runOne(number, run, true);
  }
  if (over.problem?.trouble === 'no_assistant') {
    say(number, 'idle', 'not run');
    return 'not run';
  }
  if (over.status === 'stopped' || over.ends_run) {
    say(number, 'idle', 'not run', over.message);
    throw new Halt(`Block ${number} was not run: ${over.message ?? 'it was stopped'}`);
  }
  const tone = { done: 'ok', failed: 'bad', refused: 'bad' }[over.status] ?? 'idle';
  // A refusal that is already shown under the block is not repeated next to it.
  const isTold = over.written === 'written' || over.written === 'unchanged';
  const lost = { block_changed: 'The result was not written: the block changed during the run.', kept: 'The result was not written: the existing one was edited during the run.', unfit: 'Its result was not written: it would have changed more than its own place.' }[over.written];
  say(number, tone, over.status + took(over.took_ms), over.status === 'refused' && !isTold ? reasons(over) : serverRequestHint(over) ?? lost);
  return over.status;
}

async function run(numbers) {
  current = new AbortController();
  problems.replaceChildren();
  rest.replaceChildren();
  if (statesOf !== blocksOf(document)) states.clear();
  statesOf = blocksOf(document);
  numbers.forEach((number) => states.set(String(number), ['idle', 'waiting']));
  const run = { version: edition().version, session: `console-${crypto.getRandomValues(new Uint32Array(2)).join('-')}` };
  const counted = new Map();
  const count = (status, number) => counted.set(status, [...(counted.get(status) ?? []), number]);
  let at = 0;
  try {
    for (; at < numbers.length; at += 1) {
      told.textContent = `Running block ${numbers[at]} (${at + 1} of ${numbers.length}) …`;
      draw();
      count(await runBlock(numbers[at], run), numbers[at]);
      refresh();
    }
  } catch (error) {
    const isStopped = error.name === 'AbortError';
    numbers.slice(at).forEach((number) => states.set(String(number), ['idle', 'not run', states.get(String(number))?.[2]]));
    if (isStopped) states.set(String(numbers[at]), ['idle', 'stopped']);
    else if (!(error instanceof Halt)) states.set(String(numbers[at]), ['bad', 'failed']);
    numbers.slice(at).forEach((number, place) => count(isStopped && place === 0 ? 'stopped' : 'not run', number));
    // Browsers only report that there is no connection.
    const why = error instanceof TypeError ? AWAY : error.message;
    if (!isStopped) complain(error instanceof Halt ? why : `Block ${numbers[at]}: ${why}`);
  } finally {
    current = null;
    sum(counted);
    if (at < numbers.length && numbers.length > 1) offerRest(numbers.slice(at));
    draw();
    refresh();
  }
}

// The blocks that were not run can be run separately.
function offerRest(numbers) {
  const button = Object.assign(document.createElement('button'), { className: 'quiet small', textContent: numbers.length === 1 ? 'Run the last one' : `Run the other ${numbers.length}` });
  button.dataset.run = numbers.join(' ');
  rest.replaceChildren(button);
}

// The number of blocks per status, with links to those that failed.
function sum(counted) {
  told.replaceChildren();
  counted.forEach((numbers, status) => {
    told.append(`${told.textContent ? ', ' : ''}${numbers.length} ${status}`);
    if (!['failed', 'refused'].includes(status) || numbers.length > 20) return;
    told.append(': ', ...numbers.flatMap((number, at) => [at ? ' ' : '', Object.assign(document.createElement('a'), { href: `#block-${number}`, textContent: `block ${number}` })]));
  });
}

document.addEventListener('click', (event) => {
  const button = event.target.closest('[data-run]');
  // Without this script, the form starts the run.
  if (button) event.preventDefault();
  if (button && !current && button.dataset.run) run(button.dataset.run.split(' ').map(Number));
});
runAll?.addEventListener('click', (event) => { event.preventDefault(); if (!current && edition().all) run(edition().all.split(' ').map(Number)); });
stop?.addEventListener('click', () => current?.abort());
// After an update of the page, the states of its blocks are shown again.
document.addEventListener('console:refreshed', draw);
// The page follows changes of the file by any program.
if (told) {
  let seen = false;
  whileVisible(told.dataset.changes, { 'document.changed': () => refresh() }, { opened: () => { if (seen) refresh(); seen = true; } });
}
if (told) draw();
