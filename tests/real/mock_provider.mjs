// An identity provider that issues whatever it is asked for (oauth2-mock-server). Each line on stdin asks for a token, in
// JSON: `claims` to add (null removes one), `header`, `kid` of the key, `ttl` in seconds. `{"generate": "ES256"}` adds a key
// and prints its id.
//
// usage: node mock_provider.mjs <path of the package> <audience>

import { createInterface } from 'node:readline';

const [, , path, audience] = process.argv;
const { OAuth2Server } = await import(path);
const server = new OAuth2Server();
await server.issuer.keys.generate('RS256');
await server.start(0, '127.0.0.1');
console.log(server.issuer.url);

for await (const line of createInterface({ input: process.stdin })) {
  const { generate, claims = {}, header = {}, kid, ttl = 300 } = JSON.parse(line);
  if (generate) {
    console.log((await server.issuer.keys.generate(generate)).kid);
    continue;
  }
  const change = (itsHeader, payload) => {
    Object.assign(itsHeader, header);
    Object.assign(payload, { aud: audience, sub: 'ann' }, claims);
    for (const [name, value] of Object.entries(payload)) if (value === null) delete payload[name];
  };
  console.log(await server.issuer.buildToken({ scopesOrTransform: change, kid, expiresIn: ttl }));
}
process.exit();
