// The calls made in this tab; they are not stored elsewhere, because arguments may be secret.

// Another user may sign in next in the same tab.
const runs = `runs of ${document.querySelector('.principal')?.textContent ?? ''}`;
const storedRuns = () => { try { return JSON.parse(sessionStorage.getItem(runs) ?? '[]'); } catch { return []; } };

function remember(entry) {
  const all = [{ ...entry, at: Date.now() }, ...storedRuns()].slice(0, 20);
  try { sessionStorage.setItem(runs, JSON.stringify(all)); } catch { /* there is no room for it, and it is no loss */ }
  list();
}

function list() {
  const section = document.getElementById('history');
  const all = storedRuns();
  if (!section || !all.length) return;
  section.hidden = false;
  section.querySelector('tbody').replaceChildren(...all.map((entry) => {
    const again = make('button', { type: 'button', className: 'quiet small', textContent: 'Run again', disabled: Boolean(bench?.hasAttribute('data-running')) });
    again.addEventListener('click', () => {
      if (bench?.dataset.name === entry.tool) {
        const raw = document.getElementById('raw');
        raw.value = entry.text;
        raw.dispatchEvent(new Event('input'));
        bench.requestSubmit(document.getElementById('anyway'));
      } else {
        sessionStorage.setItem('again', JSON.stringify(entry));
        location.href = `/playground?tool=${encodeURIComponent(entry.tool)}`;
      }
    });
    return make('tr', {}, make('td', { className: 'nowrap', textContent: new Date(entry.at).toTimeString().slice(0, 8) }), make('th', { scope: 'row' }, visible(entry.tool), ' ', entry.harm ? badge('warn', entry.harm) : null),
      make('td', {}, make('code', { textContent: visible(entry.text.slice(0, 1000).replace(/\s+/g, ' ').slice(0, 120)) })), make('td', {}, badge({ done: 'ok', cancelled: 'idle' }[entry.state] ?? 'bad', entry.state)), make('td', { className: 'n', textContent: milliseconds(entry.took) }), make('td', {}, again));
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
    bench.requestSubmit(document.getElementById('anyway'));
  }
}
