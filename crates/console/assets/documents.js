// Runs the blocks of a document, one after the other, and shows how far they are. Every block is a run of its own, so that
// its result stands in the file, and on the page, before the next one begins.
'use strict';

const told = document.getElementById('run-status');
const problems = document.getElementById('problems');
const stop = document.getElementById('stop');
// How it stands with every block that was run from this page: [tone, words].
const states = new Map();
let current = null;

function draw() {
  document.querySelectorAll('[data-state]').forEach((place) => {
    const [tone, words] = states.get(place.dataset.state) ?? [];
    if (!tone) { place.replaceChildren(); return; }
    const badge = Object.assign(document.createElement('span'), { className: `badge ${tone}` });
    badge.append(document.createElement('i'), words);
    place.replaceChildren(badge);
  });
  document.querySelectorAll('[data-run]').forEach((button) => { button.disabled = current !== null || !button.dataset.run; });
  stop.hidden = current === null;
  told.hidden = !told.textContent;
}

function say(number, tone, words) {
  states.set(String(number), [tone, words]);
  draw();
}

function complain(text) {
  const line = Object.assign(document.createElement('pre'), { className: 'error', textContent: text });
  problems.append(line);
}

const took = (ms) => (ms == null ? '' : ms < 1000 ? ` in ${ms} ms` : ` in ${(ms / 1000).toFixed(1)} s`);

// Every event of a run, by name.
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

async function runOne(number, session, force) {
  const body = { path: told.dataset.path, blocks: [number], save: true, output: 'none', session, force };
  const response = await fetch('/api/v1/aggregator/documents/run', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'text/event-stream', 'X-CSRF-Token': csrf },
    body: JSON.stringify(body),
    signal: current.signal,
  });
  if (!response.ok) {
    const why = await response.json().catch(() => ({}));
    throw new Error(typeof why.detail === 'string' ? why.detail : why.detail?.map?.((one) => one.msg).join('\n') ?? `refused with ${response.status}`);
  }
  let over = null;
  await events(response, (name, data) => {
    if (name === 'block.executing') say(number, 'warn', 'running');
    if (name === 'block.finished') over = data;
    if (name === 'document.failed') throw new Error(data.detail ?? 'the run failed');
  });
  if (!over) throw new Error('the connection ended before the block was over');
  return over;
}

async function runBlock(number, session) {
  let over = await runOne(number, session, false);
  // What somebody wrote into a result is not lost without being asked about.
  if (over.problem?.trouble === 'edited_result' && confirm(`The result of block ${number} was edited. Replace it?`)) {
    over = await runOne(number, session, true);
  }
  const tone = { done: 'ok', failed: 'bad', refused: 'bad', stopped: 'idle' }[over.status] ?? 'idle';
  say(number, tone, over.status + took(over.took_ms));
  if (over.status === 'refused') complain(`Block ${number}: ${(over.problem?.faults ?? []).map((fault) => `line ${fault.line}: ${fault.what}`).join('\n')}`);
  return over.status;
}

async function run(numbers) {
  current = new AbortController();
  problems.replaceChildren();
  numbers.forEach((number) => states.set(String(number), ['idle', 'waiting']));
  const session = `console-${crypto.getRandomValues(new Uint32Array(2)).join('-')}`;
  const counted = { done: 0 };
  let at = 0;
  try {
    for (; at < numbers.length; at += 1) {
      told.textContent = `Running block ${numbers[at]} (${at + 1} of ${numbers.length}) …`;
      draw();
      const status = await runBlock(numbers[at], session);
      counted[status] = (counted[status] ?? 0) + 1;
      refresh();
    }
  } catch (error) {
    numbers.slice(at).forEach((number) => states.set(String(number), ['idle', 'not run']));
    states.set(String(numbers[at]), error.name === 'AbortError' ? ['idle', 'stopped'] : ['bad', 'failed']);
    if (error.name === 'AbortError') counted.stopped = numbers.length - at;
    else complain(`Block ${numbers[at]}: ${error.message}`);
  } finally {
    current = null;
    told.textContent = Object.entries(counted).map(([status, count]) => `${count} ${status}`).join(', ');
    draw();
    refresh();
  }
}

document.addEventListener('click', (event) => {
  const button = event.target.closest('[data-run]');
  if (button && !current && button.dataset.run) run(button.dataset.run.split(' ').map(Number));
});
stop?.addEventListener('click', () => current?.abort());
// The page was brought up to date: what is known of its blocks is put there again.
document.addEventListener('console:refreshed', draw);
