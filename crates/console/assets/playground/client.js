// An MCP client with one session at one server, which makes one call at a time.

const version = '2025-11-25';
const read = (name) => JSON.parse(bench.dataset[name]);

// Browsers give no reason when the service is unreachable.
const reached = (answer) => answer.catch((error) => {
  if (error.name === 'AbortError') throw error;
  throw new Error('The service is unreachable: it was stopped, or the network connection is lost. If a tool was running, it is unknown whether it finished.');
});

class Client {
  constructor(path) { this.path = path; this.session = null; this.next = 1; }

  async post(message, signal) {
    const headers = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', 'X-CSRF-Token': csrf };
    if (this.session) Object.assign(headers, { 'Mcp-Session-Id': this.session, 'MCP-Protocol-Version': version });
    const response = await reached(fetch(this.path, { method: 'POST', headers, body: typeof message === 'string' ? message : JSON.stringify(message), signal }));
    if (response.status === 401) throw new Error('You are signed out. Sign in in another tab, then run the tool again here.');
    if (!response.ok) {
      const text = await response.text();
      let why = text;
      try { const told = JSON.parse(text); why = told.error?.message ?? told.detail ?? text; } catch { /* it is no JSON, and stands as it is */ }
      throw Object.assign(new Error(`${response.status}: ${why}`), { status: response.status });
    }
    return response;
  }

  // The signal ends the wait for a server that is starting.
  async connect(signal) {
    const request = { jsonrpc: '2.0', id: this.next++, method: 'initialize', params: { protocolVersion: version, capabilities: { elicitation: { form: {}, url: {} } }, clientInfo: { name: 'mcp-aggregator console', version: '1' } } };
    const response = await this.post(request, signal);
    this.session = response.headers.get('Mcp-Session-Id');
    let refusal = null;
    await this.messages(response, (message) => { refusal = message.error?.message ?? refusal; });
    if (refusal || !this.session) throw new Error(refusal ?? 'the service returned no session');
    await this.post({ jsonrpc: '2.0', method: 'notifications/initialized' }, signal);
  }

  // Passes on each message of a response, which is JSON or an event stream.
  async messages(response, each) {
    if (!(response.headers.get('Content-Type') ?? '').startsWith('text/event-stream')) {
      const text = await response.text();
      if (text) each(JSON.parse(text), text);
      return;
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { value, done } = await reached(reader.read());
      if (done) return;
      rest += value;
      // A long response arrives in pieces; only complete lines are parsed.
      if (!value.includes('\n')) continue;
      const events = rest.split(/\r?\n\r?\n/);
      rest = events.pop();
      for (const event of events) {
        const data = event.split(/\r?\n/).filter((line) => line.startsWith('data:')).map((line) => line.slice(5).trimStart()).join('\n');
        if (data) each(JSON.parse(data), data);
      }
    }
  }

  // `signal` cancels a call that has not been sent yet.
  async call(name, args, onMessage, begun, signal) {
    if (!this.session) await this.connect(signal);
    signal.throwIfAborted();
    // The id is unique, so that the recorded execution of this call can be found.
    const id = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
    // The arguments are inserted into the request as written.
    const request = `{"jsonrpc":"2.0","id":"${id}","method":"tools/call","params":{"name":${JSON.stringify(name)},"arguments":${args},"_meta":{"progressToken":"${id}"}}}`;
    begun(id, request);
    let answer = null;
    await this.messages(await this.sent(request, signal), (message, text) => {
      if (message.id === id && !message.method) answer = { message, text };
      else onMessage(message);
    });
    if (!answer) throw new Error('the connection ended without a response');
    return answer;
  }

  // If the service no longer knows the session, a new one is created, once: an unknown session has executed nothing.
  async sent(request, signal) {
    try {
      return await this.post(request);
    } catch (error) {
      if (error.status !== 404) throw error;
      this.session = null;
      await this.connect(signal);
      signal.throwIfAborted();
      return this.post(request);
    }
  }

  async cancel(id) {
    // Without a session nothing was sent, so the signal is enough.
    if (this.session) await this.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id, reason: 'cancelled in the console' } });
  }

  // Ends the session, also while the page is closed, because an open session may block a server for other clients. Either
  // the end of the call or the end of the page takes the session; the other finds none.
  leave() {
    const { session } = this;
    this.session = null;
    if (session) fetch(this.path, { method: 'DELETE', keepalive: true, headers: { 'Mcp-Session-Id': session, 'MCP-Protocol-Version': version, 'X-CSRF-Token': csrf } }).catch(() => {});
  }
}
