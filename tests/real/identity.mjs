// An identity provider (oidc-provider) whose tokens a service accepts.
//
// The provider is the real thing: dynamic registration, PKCE, resource indicators, introspection, refresh tokens that
// rotate. Ours are the pages on which a person signs in, and a second address where tests ask for tokens that no
// provider would issue (`/mint`), replace the keys (`/rotate`) and look at what happened (`/journal`).

import { createServer } from 'node:http';
import { once } from 'node:events';
import { SignJWT, exportJWK, generateKeyPair } from 'jose';
import { Provider } from 'oidc-provider';

const { public_url: publicUrl, format = 'jwt', access_ttl: ttl = 3600 } = JSON.parse(process.env.SETTINGS);
const journal = [];

// What each person may get.
const rolesOf = { ann: ['mcp:user', 'mcp:operator', 'mcp:admin'], olga: ['mcp:user', 'mcp:operator'] };
const allowed = name => rolesOf[name] ?? ['mcp:user'];

async function listen() {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, origin: `http://127.0.0.1:${server.address().port}` };
}
const front = await listen();
const control = await listen();

async function makeKey(id, alg = 'RS256') {
  const pair = await generateKeyPair(alg, { extractable: true });
  const about = { kid: id, alg, use: 'sig' };
  const secret = { ...(await exportJWK(pair.privateKey)), ...about };
  return { ...pair, alg, id, secret, public: { ...(await exportJWK(pair.publicKey)), ...about } };
}
let key = await makeKey('first');
let published = [key.public];
let mayRenew = true;

const provider = new Provider(front.origin, {
  clients: [
    {
      client_id: 'mcp-aggregator',
      client_secret: 'service: secret/with+signs%',
      redirect_uris: [`${publicUrl}/login/callback`],
      grant_types: ['authorization_code', 'refresh_token'],
    },
  ],
  jwks: { keys: [key.secret] },
  cookies: { keys: ['not a secret'] },
  claims: { openid: ['sub'], profile: ['preferred_username'] },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    introspection: { enabled: true, allowedPolicy: () => true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => publicUrl,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, wanted) => ({
        scope: 'mcp:user mcp:operator mcp:admin',
        audience: wanted,
        accessTokenFormat: format,
        accessTokenTTL: ttl,
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
  extraTokenClaims: (_, token) => ({ preferred_username: token.accountId, roles: allowed(token.accountId) }),
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, preferred_username: id }) }),
  interactions: { url: (_, { uid }) => `/interaction/${uid}` },
  issueRefreshToken: (_, client) => client.grantTypeAllowed('refresh_token'),
  pkce: { required: () => true },
  rotateRefreshToken: true,
  scopes: ['openid', 'profile', 'offline_access', 'mcp:user', 'mcp:operator', 'mcp:admin'],
});
provider.on('server_error', (_, error) => journal.push({ event: 'server_error', error: error.stack }));
provider.on('grant.error', (_, error) =>
  journal.push({ event: 'grant_error', error: error.error_detail ?? error.message }));
provider.on('grant.success', ctx => journal.push({ event: 'token', grant: ctx.oidc.params.grant_type }));

// The page on which a person signs in. A person gets the scopes that were asked for, as far as they are allowed.
async function interact(request, response) {
  const { prompt, params, session, grantId } = await provider.interactionDetails(request, response);
  if (request.method === 'GET') {
    response.setHeader('content-type', 'text/html');
    const name = prompt.name === 'login' ? '<label>Name <input name="name" id="name"></label>' : '';
    response.end(`<!doctype html><title>${prompt.name}</title><link rel="icon" href="data:,"><form method="post">${name}
      <button name="answer" value="yes" id="yes">Yes</button></form>`);
    return;
  }
  const form = new URLSearchParams(await text(request));
  const finish = result => provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
  if (form.get('answer') !== 'yes') return finish({ error: 'access_denied' });
  if (prompt.name === 'login') return finish({ login: { accountId: form.get('name') } });
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope, missingResourceScopes } = prompt.details;
  if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(' '));
  for (const [indicator, scopes] of Object.entries(missingResourceScopes ?? {})) {
    const granted = scopes.filter(scope => allowed(session.accountId).includes(scope));
    grant.addResourceScope(indicator, granted.join(' '));
    grant.rejectResourceScope(indicator, scopes.filter(scope => !granted.includes(scope)).join(' '));
  }
  return finish({ consent: { grantId: await grant.save() } });
}

async function text(request) {
  let body = '';
  for await (const chunk of request) body += chunk;
  return body;
}

provider.use(async (ctx, next) => {
  await next();
  if (ctx.path !== '/token' || mayRenew || ctx.oidc?.params?.grant_type !== 'refresh_token') return;
  ctx.status = 400;
  ctx.body = { error: 'invalid_grant' };
});

const handle = provider.callback();
front.server.on('request', (request, response) => {
  journal.push({ event: 'request', path: request.url.split('?')[0] });
  if (request.url === '/jwks') {
    response.setHeader('content-type', 'application/json');
    return response.end(JSON.stringify({ keys: published }));
  }
  if (!request.url.startsWith('/interaction/')) return handle(request, response);
  interact(request, response).catch(error => {
    journal.push({ event: 'server_error', error: error.stack });
    response.writeHead(500).end();
  });
});

// A token with any claims. `by` is whose key signs it: `issuer`, `stranger` (somebody else's with the id of the issuer's),
// `none` (nobody), or `public` (HMAC with the public key).
async function mint({ claims = {}, by = 'issuer', kid, header = {} }) {
  const now = Math.floor(Date.now() / 1000);
  const all = { iss: front.origin, sub: 'ann', aud: publicUrl, iat: now, exp: now + 300, ...claims };
  const encode = value => Buffer.from(JSON.stringify(value)).toString('base64url');
  if (by === 'none') return `${encode({ alg: 'none', kid: key.id, ...header })}.${encode(all)}.`;
  const shown = { alg: key.alg, kid: kid ?? key.id, typ: 'at+jwt', ...header };
  if (by === 'public') {
    const secret = new TextEncoder().encode(JSON.stringify(key.public));
    return new SignJWT(all).setProtectedHeader({ ...shown, alg: 'HS256' }).sign(secret);
  }
  const signer = by === 'stranger' ? await makeKey('stranger') : key;
  return new SignJWT(all).setProtectedHeader(shown).sign(signer.privateKey);
}

const answers = {
  '/mint': mint,
  '/rotate': async () => {
    key = await makeKey(`key-${published[0].kid}`, 'ES256');
    published = [key.public];
    return {};
  },
  // Nobody may renew a token from now on.
  '/forget': () => {
    mayRenew = false;
    return {};
  },
  '/journal': () => journal,
};
control.server.on('request', async (request, response) => {
  const body = await text(request);
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify(await answers[request.url](body ? JSON.parse(body) : {})));
});

console.log(`listening on ${JSON.stringify({ issuer: front.origin, control: control.origin })}`);
// Whoever started it is gone when this ends.
process.stdin.resume().on('end', () => process.exit());
