// Used by all pages. Everything works without it; it keeps parts of a page up to date and saves some clicks.
'use strict';

let csrf = document.querySelector('meta[name=csrf]')?.content ?? '';

// Buttons that copy the text next to them.
document.addEventListener('click', async (event) => {
  const button = event.target.closest('[data-copy]');
  if (!button) return;
  const text = button.parentElement.querySelector('pre')?.textContent ?? '';
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    // Browsers refuse this on pages that are not served securely: then the text is selected instead.
    getSelection().selectAllChildren(button.parentElement.querySelector('pre'));
    button.textContent = 'Selected';
  }
  setTimeout(() => { button.textContent = 'Copy'; }, 1500);
});

// Actions that cannot be undone need a confirmation; slow ones show that they are running.
document.addEventListener('submit', (event) => {
  const button = event.submitter;
  if (event.target.getAttribute('action') === '/logout') sessionStorage.clear();
  const question = button?.dataset.confirm;
  if (question && !confirm(question)) {
    event.preventDefault();
    return;
  }
  // A confirmation here replaces the confirmation page.
  if (question) event.target.append(Object.assign(document.createElement('input'), { type: 'hidden', name: 'sure', value: 'yes' }));
  if (button?.dataset.busy) {
    // Only after the browser has read the form: a disabled button is not sent.
    setTimeout(() => { button.disabled = true; button.textContent = button.dataset.busy; });
  }
});

// Reads a chosen file into its text box.
document.addEventListener('change', async (event) => {
  const input = event.target.closest('input[type=file][data-into]');
  if (input?.files[0]) document.getElementById(input.dataset.into).value = await input.files[0].text();
  const all = event.target.closest('input[data-all]');
  if (all) document.querySelectorAll(`input[name="${CSS.escape(all.dataset.all)}"]`).forEach((box) => { box.checked = all.checked; });
  if (event.target.closest('[data-submit]')) event.target.form.requestSubmit();
});

// Each live part as the service rendered it, before scripts change it.
document.querySelectorAll('[data-live]').forEach((part) => { part.dataset.was = part.innerHTML; });
const reveal = (root) => root.querySelectorAll('[data-copy][hidden], [data-script][hidden]').forEach((it) => { it.hidden = false; });
reveal(document);

// Live parts: when an event concerns a part, the page is requested again and the part is replaced. Without events, nothing
// is requested.
const live = document.getElementById('live');
const parts = () => [...document.querySelectorAll('[data-live]')];
let wanted = false;
let running = false;
const signIn = () => Object.assign(document.createElement('a'), { textContent: 'signed out: sign in', target: '_blank', href: `/login?next=${encodeURIComponent(location.pathname + location.search)}` });

// After another sign-in there is a new secret; forms that were filled in meanwhile must send it.
function renew(fresh) {
  const secret = fresh.querySelector('meta[name=csrf]')?.content;
  if (!secret || secret === csrf) return;
  csrf = secret;
  document.querySelectorAll('input[name=csrf]').forEach((input) => { input.value = secret; });
}

// Text that the user is typing is never replaced.
let isTyped = false;
document.addEventListener('input', () => { isTyped = true; });

// While the user presses a button or selects text, nothing is replaced.
let isPressed = false;
const isMarked = () => !getSelection().isCollapsed && document.getElementById('main').contains(getSelection().anchorNode);
const HELD = 'paused while text is selected';
const isHeld = () => isPressed || isMarked();
const press = (isDown) => () => { isPressed = isDown; if (wanted && !isHeld()) refresh(); };
addEventListener('pointerdown', press(true), true);
['pointerup', 'pointercancel', 'blur', 'dragend'].forEach((name) => addEventListener(name, press(false), true));
document.addEventListener('selectionchange', () => { if (wanted && !isHeld()) refresh(); });

async function refresh() {
  if (!parts().length) return;
  // The page is hidden: it is updated when it becomes visible.
  if (running || document.hidden || isHeld()) {
    wanted = true;
    if (isMarked() && live.classList.contains('on')) live.textContent = HELD;
    return;
  }
  running = true;
  wanted = false;
  try {
    const response = await fetch(location.href, { headers: { 'X-Live': '1' } });
    if (response.redirected && new URL(response.url).pathname === '/login') { live.replaceChildren(signIn()); live.classList.remove('on'); return; }
    const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
    renew(fresh);
    if (live.querySelector('a') || live.textContent === HELD) { live.textContent = 'live'; live.classList.add('on'); }
    if (isHeld()) { wanted = true; return; }
    if (response.status === 404 && isTyped) return;
    // A file that is being rewritten may be missing for a moment; keep following it.
    const gone = document.getElementById('gone');
    if (gone) gone.hidden = response.status !== 404;
    if (response.status === 404 && gone) return;
    if (response.status === 404) {
      // The subject of this page was removed.
      document.getElementById('main').replaceChildren(...document.adoptNode(fresh.getElementById('main')).childNodes);
      return;
    }
    for (const part of parts()) {
      const other = fresh.getElementById(part.id);
      if (!other || other.innerHTML === part.dataset.was || part.contains(document.activeElement) && part.querySelector(':focus:is(input, select, textarea)')) continue;
      part.dataset.was = other.innerHTML;
      const open = [...part.querySelectorAll('details[open]')].map((it) => it.id).filter(Boolean);
      const ticked = [...part.querySelectorAll('input[type=checkbox]:checked')].map((it) => it.value);
      const focus = document.activeElement && part.contains(document.activeElement) ? [document.activeElement.id, document.activeElement.getAttribute('href')] : [];
      part.replaceChildren(...document.adoptNode(other).childNodes);
      open.forEach((id) => { const it = document.getElementById(id); if (it) it.open = true; });
      part.querySelectorAll('input[type=checkbox]').forEach((box) => { if (ticked.includes(box.value)) box.checked = true; });
      const [id, href] = focus;
      if (id) document.getElementById(id)?.focus();
      else if (href) part.querySelector(`[href="${CSS.escape(href)}"]`)?.focus();
      reveal(part);
    }
    document.dispatchEvent(new Event('console:refreshed'));
  } catch {
    // The service is unreachable: the event stream shows when it is back.
  } finally {
    // One update per second is enough.
    setTimeout(() => { running = false; if (wanted) refresh(); }, 1000);
  }
}

// The stream is open only while the page is visible: browsers limit connections per host, and every tab would hold one.
function whileVisible(address, listeners, { opened = () => {}, failed = () => {} } = {}) {
  let source = null;
  let retry = 0;
  const close = () => { clearTimeout(retry); source?.close(); source = null; };
  const open = () => {
    close();
    if (document.hidden) return;
    source = new EventSource(address);
    source.onopen = opened;
    source.onerror = () => {
      failed(source?.readyState === EventSource.CLOSED);
      // The browser does not retry a refused stream by itself.
      if (source?.readyState === EventSource.CLOSED) retry = setTimeout(open, 3000);
    };
    Object.entries(listeners).forEach(([name, onEvent]) => source.addEventListener(name, onEvent));
  };
  document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));
  addEventListener('pagehide', close);
  addEventListener('pageshow', (event) => { if (event.persisted) open(); });
  open();
}

// A shared worker receives the service's events for all tabs.
function follow() {
  const told = (what, isOn) => { live.replaceChildren(what); live.classList.toggle('on', isOn); };
  const onEvent = ({ data: { state, name, data } }) => {
    if (state === 'live') {
      told('live', true);
      // Events between the response with this page and now were missed.
      refresh();
    } else if (state) {
      told(state === 'out' ? signIn() : 'not live', false);
    } else {
      document.dispatchEvent(new CustomEvent('console:event', { detail: { name, data: JSON.parse(data) } }));
      const shown = parts().some((part) => part.dataset.live.split(' ').some((prefix) => name.startsWith(prefix)) || name === 'events.missed');
      if (shown) refresh();
    }
  };
  const open = () => {
    const port = window.SharedWorker ? new SharedWorker(live.dataset.events).port : new Worker(live.dataset.events);
    port.onmessage = onEvent;
    addEventListener('pagehide', () => port.postMessage('bye'), { once: true });
  };
  open();
  addEventListener('pageshow', (event) => { if (event.persisted) { open(); refresh(); } });
  document.addEventListener('visibilitychange', () => { if (wanted && !document.hidden) refresh(); });
}
if (live) follow();

// Characters that change the display: control characters, and those that change the direction of text.
const visible = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
  (sign) => (sign === '\r' ? '' : `\u27e8U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}\u27e9`));

// The stderr of a server, line by line. A server may write faster than the page can show.
const stderr = document.getElementById('stderr');
if (stderr) {
  const most = 500;
  const add = ({ lines, missed }) => {
    const follows = stderr.scrollTop + stderr.clientHeight >= stderr.scrollHeight - 40;
    const said = missed ? [`\u2026 ${missed} lines skipped: the server writes too fast`, ...lines] : lines;
    stderr.append(...said.map((line) => Object.assign(document.createElement('div'), { textContent: visible(line) })));
    while (stderr.childElementCount > most) stderr.firstElementChild.remove();
    // Do not scroll if the user has scrolled up.
    if (follows) stderr.scrollTop = stderr.scrollHeight;
  };
  stderr.scrollTop = stderr.scrollHeight;
  whileVisible(stderr.dataset.log, {
    'log.tail': (event) => { stderr.replaceChildren(); add(JSON.parse(event.data)); },
    'log.lines': (event) => add(JSON.parse(event.data)),
  });
}

// Describes an event in a sentence.
function inWords(name, data) {
  const why = data.error_message ? `: ${data.error_message}` : '';
  const took = data.duration_ms != null ? ` after ${data.duration_ms.toFixed(1)} ms` : '';
  if (name.startsWith('execution.')) {
    const word = { pending: 'is queued', executing: 'is running', success: 'succeeded', error: 'failed', timeout: 'timed out', cancelled: 'was cancelled' }[name.slice(10)];
    return `${data.tool_name} ${word}${took}${why}`;
  }
  if (name === 'server.status_changed') return `${data.previous} \u2192 ${data.status}${why}`;
  if (name === 'server.sign_in_required') return `a sign-in is required${why}`;
  if (name === 'server.signed_in') return 'somebody signed in';
  if (name === 'server.signed_out') return 'somebody signed out';
  if (name === 'tools.changed') return `the server now has ${data.tool_count} tools`;
  return data.message ?? `the server was ${name.split('.')[1]}`;
}

// The live log of a server's page.
const log = document.getElementById('log');
if (log) {
  document.addEventListener('console:event', ({ detail: { name, data } }) => {
    if (data.server_id !== log.dataset.server && data.name !== log.dataset.name && data.server_name !== log.dataset.name) return;
    const line = document.createElement('div');
    // The time format of the other pages.
    line.textContent = visible(`${new Date().toTimeString().slice(0, 8)}  ${inWords(name, data)}`);
    if (log.dataset.empty) { log.replaceChildren(); delete log.dataset.empty; }
    log.append(line);
    while (log.childElementCount > 500) log.firstChild.remove();
    log.scrollTop = log.scrollHeight;
  });
}

// A form for several kinds of servers shows what the chosen kind needs.
const kinds = document.querySelector('[data-kinds]');
if (kinds) {
  const choose = () => document.querySelectorAll('fieldset[data-kind]').forEach((part) => { part.hidden = !part.dataset.kind.split(' ').includes(kinds.value); });
  kinds.addEventListener('change', choose);
  choose();
}

// On a narrow screen the menu is wider than the page.
document.querySelector('.side [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });
