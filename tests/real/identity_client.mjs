// A client of the TypeScript SDK that signs in to a service and calls a tool. It prints the address that a person has to
// open, reads the one that the browser is redirected to, and prints the results of two calls: one with the first token, one
// with a token that it was made to refresh.
//
// usage: node identity_client.mjs v1|v2 <url of the service> <redirect address> <tool>

import { createInterface } from 'node:readline';

const [, , version, url, redirectUrl, tool] = process.argv;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const load = {
  async v1() {
    const parts = ['client/index.js', 'client/streamableHttp.js', 'client/auth.js'];
    const [client, http, auth] = await Promise.all(parts.map(path => import(`@modelcontextprotocol/sdk/${path}`)));
    return { ...client, ...http, ...auth };
  },
  v2: () => import('@modelcontextprotocol/client'),
};
const { Client, StreamableHTTPClientTransport } = await load[version]();

const stored = {};
const authProvider = {
  redirectUrl,
  clientMetadata: {
    client_name: 'a client of the SDK',
    redirect_uris: [redirectUrl],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: 'none',
    application_type: 'native',
  },
  state: () => 'a-state',
  clientInformation: () => stored.client,
  saveClientInformation: client => void (stored.client = client),
  tokens: () => stored.tokens,
  saveTokens: tokens => void (stored.tokens = tokens),
  codeVerifier: () => stored.verifier,
  saveCodeVerifier: verifier => void (stored.verifier = verifier),
  redirectToAuthorization: address => console.log(`open ${address}`),
};
const transport = () => new StreamableHTTPClientTransport(new URL(url), { authProvider });
const call = async client => {
  const result = await client.callTool({ name: tool, arguments: { text: 'hello' } });
  console.log(`called ${JSON.stringify(result.content)}`);
};

const first = transport();
await new Client({ name: 'sdk', version: '1.0.0' }).connect(first).then(
  () => console.log('let in without a token'),
  error => console.error(`refused: ${error.message}`),
);
const { value: callback } = await lines.next();
const parameters = new URL(callback).searchParams;
await first.finishAuth(version === 'v1' ? parameters.get('code') : parameters);

const client = new Client({ name: 'sdk', version: '1.0.0' });
await client.connect(transport());
await call(client);
// As if it had expired: the client gets a 401, refreshes, and goes on in its session.
stored.tokens.access_token = 'expired';
await call(client);
await client.close();
process.exit();
