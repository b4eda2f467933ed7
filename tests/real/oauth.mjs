// An identity provider (oidc-provider) and an MCP server that it protects (the TypeScript SDK v2).
//
// The provider is the real thing: dynamic registration, PKCE, resource indicators, refresh tokens that rotate and whose
// reuse revokes the grant, revocation, introspection. Ours are the pages on which a person signs in, and a third address
// where tests look at what happened (`/journal`) and change how it goes on (`/settings`).

import { createServer } from 'node:http';
import { once } from 'node:events';
import { Provider, errors } from 'oidc-provider';
import {
  McpServer,
  OAuthError,
  createMcpHandler,
  getOAuthProtectedResourceMetadataUrl,
  oauthMetadataResponse,
  requireBearerAuth,
} from '@modelcontextprotocol/server';
import { z } from 'zod';

// What tests may change while it runs.
const settings = {
  // How many seconds an access token lives.
  access_ttl: 3600,
  // Where a refresh stops until `hold` changes: `before` it is carried out, `after` it, or nowhere.
  hold: null,
  // Nobody listens at the address of the provider.
  unreachable: false,
  // The status with which the provider answers every request instead of what it should do.
  broken: null,
  // Requests with a token that is not valid are answered when so many of them wait.
  unauthorized_together: 0,
  // The scope that a call of the tool `write` needs.
  write_scope: 'notes:read',
  ...JSON.parse(process.env.SETTINGS ?? '{}'),
};
const journal = [];
const note = (event, details = {}) => journal.push({ event, ...details });

// Tokens and clients: tests can forget tokens.
const storage = new Map();
class Adapter {
  constructor(kind) {
    this.prefix = `${kind}:`;
  }
  async upsert(id, payload) {
    storage.set(this.prefix + id, payload);
  }
  async find(id) {
    return storage.get(this.prefix + id);
  }
  async findByUid(uid) {
    return [...storage].find(([key, value]) => key.startsWith(this.prefix) && value.uid === uid)?.[1];
  }
  async consume(id) {
    storage.get(this.prefix + id).consumed = Math.floor(Date.now() / 1000);
  }
  async destroy(id) {
    storage.delete(this.prefix + id);
  }
  async revokeByGrantId(grantId) {
    for (const [key, value] of storage) {
      if (key.startsWith(this.prefix) && value.grantId === grantId) storage.delete(key);
    }
  }
}

async function listen() {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, origin: `http://127.0.0.1:${server.address().port}` };
}
const front = await listen(); // The provider, as the world sees it.
const back = await listen(); // The provider for the protected server, which no test takes away.
const guarded = await listen();
const control = await listen();
const resource = `${guarded.origin}/mcp`;

const provider = new Provider(front.origin, {
  adapter: Adapter,
  clients: [
    {
      client_id: 'resource-server',
      client_secret: 'resource-server-secret',
      redirect_uris: [],
      response_types: [],
      grant_types: [],
    },
    {
      client_id: 'machine',
      client_secret: 'machine: secret/with+signs%',
      redirect_uris: [],
      response_types: [],
      grant_types: ['client_credentials'],
    },
  ],
  cookies: { keys: ['not a secret'] },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    introspection: { enabled: true },
    revocation: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo(_, wanted) {
        if (wanted !== resource) throw new errors.InvalidTarget();
        return {
          scope: 'notes:read notes:write',
          audience: wanted,
          accessTokenFormat: 'opaque',
          accessTokenTTL: settings.access_ttl,
        };
      },
    },
  },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (_, { uid }) => `/interaction/${uid}` },
  issueRefreshToken: (_, client) => client.grantTypeAllowed('refresh_token'),
  pkce: { required: () => true },
  rotateRefreshToken: true,
  scopes: ['openid', 'offline_access'],
});

provider.use(async (ctx, next) => {
  if (ctx.path !== '/token') return next();
  await held('before');
  await next();
  const { grant_type: grant, resource: target } = ctx.oidc?.params ?? {};
  note('token', {
    grant,
    resource: target,
    client: ctx.oidc?.client?.clientId,
    status: ctx.status,
    error: ctx.body?.error,
  });
  if (grant === 'refresh_token') await held('after');
});
provider.on('grant.error', (_, error) => {
  // Somebody sent a refresh token that was used before: all tokens of this sign-in are revoked.
  if (error.error_detail === 'refresh token already used') note('reuse');
});
provider.on('registration_create.success', (_, client) => {
  note('registered', { client: client.clientId, type: client.applicationType, redirects: client.redirectUris });
});
provider.on('refresh_token.destroyed', () => note('refresh_token_destroyed'));
provider.on('access_token.destroyed', () => note('access_token_destroyed'));
provider.on('authorization.success', ctx => note('authorized', { scope: ctx.oidc.params.scope }));
provider.on('server_error', (_, error) => note('server_error', { error: error.stack }));

async function held(point) {
  if (settings.hold !== point) return;
  note('held', { point });
  while (settings.hold === point) await new Promise(resolve => setTimeout(resolve, 2));
}

// The pages on which a person signs in, and allows or refuses.
const page = (title, inner) =>
  `<!doctype html><title>${title}</title><link rel="icon" href="data:,"><h1>${title}</h1><form method="post">${inner}
  <button name="answer" value="yes" id="yes">Yes</button> <button name="answer" value="no" id="no">No</button></form>`;

async function interact(request, response) {
  const details = await provider.interactionDetails(request, response);
  const { prompt, params, session, grantId } = details;
  if (request.method === 'GET') {
    response.setHeader('content-type', 'text/html');
    const name = '<label>Name <input name="name" id="name"></label>';
    response.end(prompt.name === 'login' ? page('Sign in', name) : page('Allow access?', ''));
    return;
  }
  const form = new URLSearchParams(await text(request));
  const finish = result => provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
  if (form.get('answer') !== 'yes') {
    note('refused');
    return finish({ error: 'access_denied', error_description: 'the person said no' });
  }
  if (prompt.name === 'login') return finish({ login: { accountId: form.get('name') } });
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope, missingResourceScopes } = prompt.details;
  if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(' '));
  for (const [indicator, scopes] of Object.entries(missingResourceScopes ?? {})) {
    grant.addResourceScope(indicator, scopes.join(' '));
  }
  return finish({ consent: { grantId: await grant.save() } });
}

async function text(request) {
  let body = '';
  for await (const chunk of request) body += chunk;
  return body;
}

const handle = provider.callback();
const sockets = new Set();
front.server.on('connection', socket => {
  sockets.add(socket);
  socket.on('close', () => sockets.delete(socket));
});
async function setReachable(isReachable) {
  if (isReachable === front.server.listening) return;
  if (isReachable) {
    front.server.listen(Number(new URL(front.origin).port), '127.0.0.1');
    await once(front.server, 'listening');
  } else {
    front.server.close();
    sockets.forEach(socket => socket.destroy());
  }
}
front.server.on('request', (request, response) => {
  if (settings.broken) return response.writeHead(settings.broken).end('<h1>Come back later</h1>');
  if (!request.url.startsWith('/interaction/')) return handle(request, response);
  interact(request, response).catch(error => {
    note('server_error', { error: error.stack });
    response.writeHead(500).end();
  });
});
back.server.on('request', handle);

// The protected server. It asks the provider about every token.
const secret = Buffer.from('resource-server:resource-server-secret').toString('base64');
async function verifyAccessToken(token) {
  const answer = await fetch(`${back.origin}/token/introspection`, {
    method: 'POST',
    headers: { authorization: `Basic ${secret}` },
    body: new URLSearchParams({ token }),
  });
  const found = await answer.json();
  if (!found.active) throw new OAuthError('invalid_token', 'the token is not active');
  const audience = new URL([found.aud].flat()[0]);
  const scopes = (found.scope ?? '').split(' ');
  return { token, clientId: found.client_id, scopes, expiresAt: found.exp, resource: audience, extra: found };
}

const mcp = createMcpHandler(() => {
  const server = new McpServer({ name: 'protected', version: '1.0.0' });
  server.registerTool('whoami', { description: 'Says who signed in.' }, async ctx => {
    const { sub, client_id: client } = ctx.http.authInfo.extra;
    return { content: [{ type: 'text', text: `${sub ?? client}` }] };
  });
  const words = z.object({ text: z.string() });
  server.registerTool('write', { description: 'Writes a note.', inputSchema: words }, async ({ text: written }) => ({
    content: [{ type: 'text', text: `wrote ${written}` }],
  }));
  return server;
});
const oauthMetadata = await (await fetch(`${back.origin}/.well-known/openid-configuration`)).json();
const metadata = {
  oauthMetadata: { ...oauthMetadata, issuer: front.origin },
  resourceServerUrl: new URL(resource),
  scopesSupported: ['notes:read'],
  dangerouslyAllowInsecureIssuerUrl: true,
};
const resourceMetadataUrl = getOAuthProtectedResourceMetadataUrl(new URL(resource));
let waiting = [];

async function guard(request) {
  const document = oauthMetadataResponse(request, metadata);
  if (document) return document;
  const { method, params } = await request.clone().json().catch(() => ({}));
  const requiredScopes = method === 'tools/call' && params.name === 'write' ? [settings.write_scope] : [];
  const gate = requireBearerAuth({
    verifier: { verifyAccessToken },
    requiredScopes,
    resourceMetadataUrl,
    expectedResource: new URL(resource),
  });
  const auth = await gate(request);
  note('request', { method, status: auth instanceof Response ? auth.status : 200 });
  if (!(auth instanceof Response)) return mcp.fetch(request, { authInfo: auth });
  if (auth.status === 401) await together();
  return auth;
}

// Waits until as many requests wait as were asked for.
function together() {
  return new Promise(resolve => {
    waiting.push(resolve);
    if (waiting.length < settings.unauthorized_together) return;
    waiting.forEach(go => go());
    waiting = [];
    settings.unauthorized_together = 0;
  });
}

guarded.server.on('request', async (request, response) => {
  const body = ['GET', 'HEAD'].includes(request.method) ? undefined : await text(request);
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  const asked = new Request(guarded.origin + request.url, {
    method: request.method,
    headers: request.headers,
    body,
    signal: gone.signal,
  });
  try {
    const answer = await guard(asked);
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    for await (const chunk of answer.body ?? []) response.write(chunk);
    response.end();
  } catch (error) {
    if (!gone.signal.aborted) note('server_error', { error: error.stack });
    response.destroy();
  }
});

const forget = kind => [...storage.keys()].filter(key => key.startsWith(`${kind}:`)).forEach(key => storage.delete(key));
// Everything that only the client and the provider may know.
const secrets = () =>
  [...storage.keys()]
    .map(key => key.split(':'))
    .filter(([kind]) => ['AccessToken', 'RefreshToken', 'AuthorizationCode'].includes(kind))
    .map(([, id]) => id);
control.server.on('request', async (request, response) => {
  const body = await text(request);
  if (request.url === '/settings') {
    Object.assign(settings, JSON.parse(body));
    await setReachable(!settings.unreachable);
  }
  // The tokens of these kinds are not known from now on, as after a revocation.
  if (request.url === '/forget') JSON.parse(body).forEach(forget);
  const shown = { '/journal': () => journal, '/secrets': secrets }[request.url] ?? (() => settings);
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify(shown()));
});

console.log(`listening on ${JSON.stringify({ issuer: front.origin, server: resource, control: control.origin })}`);
// Whoever started it is gone when this ends.
process.stdin.resume().on('end', () => process.exit());
