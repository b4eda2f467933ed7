// Receives the service's events once for all tabs, because browsers limit connections per host and every tab would hold
// one. This is a shared worker; in browsers without them, each page runs its own.
'use strict';

const names = ['server.registered', 'server.updated', 'server.removed', 'server.status_changed', 'server.progress', 'tools.changed',
  'server.sign_in_required', 'server.signed_in', 'server.signed_out',
  'profile.changed', 'profile.removed', 'skills.changed', 'execution.pending', 'execution.executing', 'execution.success', 'execution.error', 'execution.timeout',
  'execution.cancelled', 'notice', 'events.missed'];

const ports = new Set();
let source = null;
let state = 'away';

const broadcast = (message) => ports.forEach((port) => port.postMessage(message));

function become(next) {
  if (state === next) return;
  state = next;
  broadcast({ state });
}

function follow() {
  source = new EventSource('/api/v1/aggregator/events');
  source.onopen = () => become('live');
  source.onerror = () => (source?.readyState === EventSource.CLOSED ? wait() : become('away'));
  names.forEach((name) => source.addEventListener(name, (event) => broadcast({ name, data: event.data })));
}

// Browsers do not retry a refused stream. Either the service fails, or the user is signed out.
async function wait() {
  const answer = await fetch('/api/v1/aggregator/state').catch(() => null);
  become(answer?.status === 401 ? 'out' : 'away');
  setTimeout(answer?.ok ? follow : wait, 2000);
}

function welcome(port) {
  ports.add(port);
  port.onmessage = () => {
    // The only message of a page is that it closes.
    ports.delete(port);
    if (ports.size) return;
    source?.close();
    source = null;
    state = 'away';
  };
  port.postMessage({ state });
  if (!source) follow();
}

if ('onconnect' in self) self.onconnect = (event) => welcome(event.ports[0]);
else welcome(self);
