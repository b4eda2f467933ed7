
// A drawer: shows the target of a link next to its list, and is updated while it is open.
let drawn = null;

async function contentOf(address) {
  const response = await fetch(address, { headers: { 'X-Live': '1' } });
  if (response.redirected && new URL(response.url).pathname === '/login') {
    const told = document.createElement('p');
    told.append('You are signed out. ', Object.assign(signIn(), { textContent: 'Sign in' }), ' in another tab, then try again.');
    return { title: 'Signed out', content: [told] };
  }
  const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
  const main = document.adoptNode(fresh.getElementById('main'));
  // Ids belong to the surrounding page.
  main.querySelector('#stopped')?.remove();
  main.querySelectorAll('[data-live]').forEach((part) => { part.removeAttribute('data-live'); part.removeAttribute('id'); });
  return { title: fresh.title, content: [...main.childNodes] };
}

function openDrawer(address, { title, content }) {
  const drawer = Object.assign(document.createElement('dialog'), { className: 'drawer' });
  const close = Object.assign(document.createElement('button'), { className: 'quiet small close', textContent: 'Close' });
  const inside = document.createElement('div');
  drawer.setAttribute('aria-label', title);
  close.addEventListener('click', () => drawer.close());
  inside.append(...content);
  drawer.append(close, inside);
  drawer.addEventListener('close', () => {
    drawer.remove();
    drawn = null;
    // The list may have been rendered again in the meantime.
    const opener = [...document.querySelectorAll('a[data-drawer]')].find((link) => link.href === address);
    (opener ?? document.getElementById('main')).focus();
  });
  drawer.addEventListener('click', (click) => { if (click.target === drawer) drawer.close(); });
  document.body.append(drawer);
  drawer.showModal();
  drawn = { address, inside, close, wanted: false, running: false };
}

async function redraw() {
  const { address, inside, close } = drawn;
  if (drawn.running || isPressed || inside.contains(getSelection().anchorNode) && !getSelection().isCollapsed) { drawn.wanted = true; return; }
  Object.assign(drawn, { running: true, wanted: false });
  try {
    const { content } = await contentOf(address);
    const hadFocus = inside.contains(document.activeElement);
    inside.replaceChildren(...content);
    if (hadFocus) close.focus();
  } catch {
    // The service is unreachable: keep the last content.
  } finally {
    // One update per second is enough.
    setTimeout(() => { if (drawn?.inside !== inside) return; drawn.running = false; if (drawn.wanted) redraw(); }, 1000);
  }
}

document.addEventListener('console:event', ({ detail: { name, data } }) => {
  const isShown = name === 'events.missed' || name.startsWith('execution.') && drawn?.address.endsWith(`/${data.id}`);
  if (drawn && isShown) redraw();
});
['pointerup', 'pointercancel'].forEach((name) => addEventListener(name, () => { if (drawn?.wanted) redraw(); }));

let isDrawing = false;
document.addEventListener('click', async (event) => {
  const link = event.target.closest('a[data-drawer]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  // A double click counts once.
  if (isDrawing || drawn) return;
  isDrawing = true;
  try {
    openDrawer(link.href, await contentOf(link.href));
  } catch {
    // The browser then shows the validation error.
    location.assign(link.href);
  } finally {
    isDrawing = false;
  }
});
