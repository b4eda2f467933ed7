// Runs steps with a client of the TypeScript SDK and prints what came back, all in JSON: v1 and v2 of the SDK have
// clients of their own. `steps.rs` tells what steps there are; stdin and stdout are as in `client.py`.
//
// usage: node client.mjs v1|v2 <sessions.json

import { text } from 'node:stream/consumers';

const LISTS = ['tools', 'prompts', 'resources'];
// Milliseconds. Long enough for a busy machine, short enough to be told before the test gives up.
const STEP_LIMIT = 60_000;
const LOG_LEVEL = 'io.modelcontextprotocol/logLevel';

// What differs between the two: where things are, and how handlers are set.
const SDKS = {
  async v1() {
    const [client, stdio, http, sse, types] = await Promise.all(
      ['client/index.js', 'client/stdio.js', 'client/streamableHttp.js', 'client/sse.js', 'types.js'].map(
        path => import(`@modelcontextprotocol/sdk/${path}`),
      ),
    );
    const schemas = {
      'elicitation/create': types.ElicitRequestSchema,
      'sampling/createMessage': types.CreateMessageRequestSchema,
      'roots/list': types.ListRootsRequestSchema,
      'notifications/message': types.LoggingMessageNotificationSchema,
      'notifications/resources/updated': types.ResourceUpdatedNotificationSchema,
      'notifications/tools/list_changed': types.ToolListChangedNotificationSchema,
      'notifications/prompts/list_changed': types.PromptListChangedNotificationSchema,
      'notifications/resources/list_changed': types.ResourceListChangedNotificationSchema,
    };
    return {
      ...client, ...stdio, ...http, ...sse,
      onRequest: (connection, method, handler) => connection.setRequestHandler(schemas[method], handler),
      onNotification: (connection, method, handler) => connection.setNotificationHandler(schemas[method], handler),
      call: (connection, params, options) => connection.callTool(params, undefined, options),
      revision: (_, transport) => transport.agreedRevision,
    };
  },
  async v2() {
    const client = await import('@modelcontextprotocol/client');
    const stdio = await import('@modelcontextprotocol/client/stdio');
    return {
      ...client, ...stdio,
      onRequest: (connection, method, handler) => connection.setRequestHandler(method, handler),
      onNotification: (connection, method, handler) => connection.setNotificationHandler(method, handler),
      call: (connection, params, options) => connection.callTool(params, options),
      revision: connection => connection.getNegotiatedProtocolVersion(),
    };
  },
};

// What came unasked, and a way to wait for more of it.
class Mailbox {
  messages = [];
  #arrived = () => {};

  put(message) {
    this.messages.push(message);
    this.#arrived();
  }

  async until(enough) {
    while (!enough(this.messages)) await new Promise(resolve => (this.#arrived = resolve));
    return this.messages;
  }
}

class Session {
  constructor(sdk, plan) {
    this.sdk = sdk;
    this.plan = plan;
    this.forget();
  }

  // Each step sees only what comes while it is carried out.
  forget() {
    this.changes = new Mailbox();
    this.logs = new Mailbox();
    this.asked = [];
    this.replies = [];
  }

  async run() {
    const transport = this.transport();
    rememberRevision(transport);
    this.client = this.build();
    await this.client.connect(transport);
    this.modern = this.client.getProtocolEra?.() === 'modern';
    const { logLevel } = this.plan;
    if (!this.modern && logLevel && this.client.getServerCapabilities().logging) {
      await this.client.setLoggingLevel(logLevel);
    }
    const seen = {
      revision: this.sdk.revision(this.client, transport),
      serverName: this.client.getServerVersion()?.name ?? null,
      capabilities: this.client.getServerCapabilities(),
      instructions: this.client.getInstructions() ?? null,
      answers: [],
    };
    // After a step that took too long there are no more.
    for (const step of this.plan.steps) {
      const answer = await Promise.race([this.step(step), this.timeOut(step)]);
      seen.answers.push(answer);
      if (answer.timedOut) break;
    }
    await this.client.close();
    return seen;
  }

  timeOut(step) {
    return new Promise(resolve => {
      const tell = () => resolve({ timedOut: step, asked: this.asked, changes: this.changes.messages });
      setTimeout(tell, STEP_LIMIT);
    });
  }

  transport() {
    const { command, args, env, url, type } = this.plan.server;
    if (command) return new this.sdk.StdioClientTransport({ command, args, env, stderr: 'inherit' });
    const Transport = type === 'sse' ? this.sdk.SSEClientTransport : this.sdk.StreamableHTTPClientTransport;
    return new Transport(new URL(url));
  }

  build() {
    const offers = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
    const capabilities = Object.fromEntries((this.plan.offers ?? []).map(offer => [offer, offers[offer]]));
    const mode = ['legacy', 'auto'].includes(this.plan.mode) ? this.plan.mode : { pin: this.plan.mode };
    const client = new this.sdk.Client(
      // Unless said otherwise, a client to which `mcp-aggregator` lists canonical names.
      { name: this.plan.name ?? 'mcp-inspector', version: '1.0.0' },
      { capabilities, versionNegotiation: { mode } },
    );
    const { onRequest, onNotification } = this.sdk;
    for (const method of ['elicitation/create', 'sampling/createMessage']) {
      if (capabilities[method.split('/')[0]]) onRequest(client, method, ({ params }) => this.reply(method, params));
    }
    const roots = [{ uri: 'file:///somewhere', name: 'somewhere' }];
    if (capabilities.roots) onRequest(client, 'roots/list', () => ({ roots }));
    onNotification(client, 'notifications/message', ({ params: { level, logger, data } }) =>
      this.logs.put({ level, logger, data }),
    );
    onNotification(client, 'notifications/resources/updated', ({ params }) => this.changes.put(params.uri));
    for (const list of LISTS) {
      onNotification(client, `notifications/${list}/list_changed`, () => this.changes.put(list));
    }
    return client;
  }

  reply(method, { _meta, ...asked }) {
    this.asked.push({ method, ...asked });
    return this.replies.shift();
  }

  async step(step) {
    this.forget();
    this.replies = [...(step.replies ?? [])];
    const verb = Object.keys(VERBS).find(name => name in step);
    const answer = await VERBS[verb](this, step).catch(failure);
    if (this.asked.length > 0) answer.asked = this.asked;
    if ('logs' in step) answer.logs = await this.logs.until(logs => logs.length >= step.logs);
    return answer;
  }

  async tools({ list: prefixes }) {
    for (;;) {
      const tools = await pages(cursor => this.client.listTools(cursor), 'tools');
      if (prefixes.every(prefix => tools.some(({ name }) => name.startsWith(prefix)))) return tools;
      await new Promise(resolve => setTimeout(resolve, 100));
    }
  }

  async watch({ watch: { uris, lists }, then }) {
    const wanted = [...uris, ...lists];
    const enough = changes => wanted.every(change => changes.includes(change));
    const stop = await (this.modern ? this.listen(uris, lists) : this.subscribe(uris));
    const answer = await this.call(then);
    const changes = await this.changes.until(enough);
    await stop();
    // How often a change is told is left to the server.
    return { ...answer, changes: [...new Set(changes)].sort() };
  }

  async subscribe(uris) {
    for (const uri of uris) await this.client.subscribeResource({ uri });
    return async () => {
      for (const uri of uris) await this.client.unsubscribeResource({ uri });
    };
  }

  async listen(uris, lists) {
    const filter = Object.fromEntries(lists.map(list => [`${list}ListChanged`, true]));
    if (uris.length > 0) filter.resourceSubscriptions = uris;
    const subscription = await this.client.listen(filter);
    return () => subscription.close();
  }

  async call(step) {
    const seen = [];
    const controller = new AbortController();
    const onprogress = ({ progress, total, message }) => {
      seen.push([progress, total ?? null, message ?? null]);
      if (seen.length === step.cancelAfter) controller.abort();
    };
    const options = { signal: controller.signal, ...(step.progress ? { onprogress } : {}) };
    const params = { name: step.call, arguments: step.arguments };
    if (this.modern && this.plan.logLevel) params._meta = { [LOG_LEVEL]: this.plan.logLevel };
    const answer = await this.sdk.call(this.client, params, options).then(
      result => ({ result }),
      error => (controller.signal.aborted ? { cancelled: true } : failure(error)),
    );
    if (step.progress) answer.progress = seen.slice(0, step.cancelAfter);
    return answer;
  }
}

// A client of v1 tells the revision to nobody but its transport.
function rememberRevision(transport) {
  const told = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = revision => {
    transport.agreedRevision = revision;
    told?.(revision);
  };
}

const result = async promise => ({ result: await promise });

const VERBS = {
  list: (session, step) => session.tools(step),
  resources: ({ client }) => pages(cursor => client.listResources(cursor), 'resources'),
  templates: ({ client }) => pages(cursor => client.listResourceTemplates(cursor), 'resourceTemplates'),
  prompts: ({ client }) => pages(cursor => client.listPrompts(cursor), 'prompts'),
  read: ({ client }, step) => result(client.readResource({ uri: step.read })),
  prompt: ({ client }, step) => result(client.getPrompt({ name: step.prompt, arguments: step.arguments })),
  complete: ({ client }, { complete: ref, argument, context }) =>
    result(client.complete({ ref, argument, ...(context ? { context: { arguments: context } } : {}) })),
  level: ({ client }, step) => result(client.setLoggingLevel(step.level)),
  watch: (session, step) => session.watch(step),
  call: (session, step) => session.call(step),
};

// Both versions put words of their own before the message.
function failure(error) {
  if (typeof error.code !== 'number') throw error;
  const message = error.message.replace(/^MCP error -?\d+: /, '');
  return { error: { code: error.code, message, ...(error.data === undefined ? {} : { data: error.data }) } };
}

async function pages(list, items) {
  const seen = [];
  let cursor;
  do {
    const page = await list(cursor === undefined ? undefined : { cursor });
    seen.push(...page[items]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return seen;
}

// The client of v2 tells its thoughts on stdout.
console.debug = console.error;
const sdk = await SDKS[process.argv[2]]();
const { inTurn, sessions } = JSON.parse(await text(process.stdin));
const seen = [];
for (const plan of sessions) {
  const session = new Session(sdk, plan).run();
  seen.push(inTurn ? await session : session);
}
const all = await Promise.all(seen);
// A session that was given up may hold the process; a pipe that is full must not lose what is in it.
process.stdout.write(JSON.stringify(all), () => process.exit());
