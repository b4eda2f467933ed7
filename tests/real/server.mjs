// A server on the TypeScript SDK v2, over stdio, for clients with either lifecycle.
//
// What the other real servers lack with the modern lifecycle: questions to the client in the middle of a call (elicitation and
// sampling), resources that can be watched, and lists that change.

import { appendFileSync } from 'node:fs';
import { McpServer, ResourceTemplate, completable, inputRequired, inputResponse } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const text = words => ({ content: [{ type: 'text', text: words }] });
const notes = new Map([['one', 'the first note']]);

function build() {
  const server = new McpServer(
    { name: 'notes', version: '1.0.0' },
    {
      instructions: 'Keeps notes.',
      capabilities: {
        tools: { listChanged: true },
        prompts: { listChanged: true },
        resources: { listChanged: true, subscribe: true },
        logging: {},
        completions: {},
      },
    },
  );
  // SDK v2 notifies all clients; in the legacy lifecycle the server itself records who is subscribed.
  const subscribed = new Set();
  server.server.setRequestHandler('resources/subscribe', ({ params }) => (subscribed.add(params.uri), {}));
  server.server.setRequestHandler('resources/unsubscribe', ({ params }) => (subscribed.delete(params.uri), {}));

  server.registerTool(
    'write',
    { description: 'Changes notes.', inputSchema: z.object({ names: z.array(z.string()), content: z.string() }) },
    async ({ names, content }, ctx) => {
      const modern = ctx.mcpReq.envelope !== undefined;
      for (const name of names) {
        notes.set(name, content);
        const uri = `note://${name}`;
        if (modern || subscribed.has(uri)) await server.server.sendResourceUpdated({ uri });
      }
      return { ...text('written'), structuredContent: { length: content.length } };
    },
  );
  let extras = [];
  server.registerTool('flip', { description: 'Adds a tool, a resource and a prompt, or removes them.' }, async () => {
    const had = extras.length > 0;
    extras.forEach(extra => extra.remove());
    extras = had ? [] : addExtras(server);
    return text('flipped');
  });
  server.registerTool(
    'count',
    { description: 'Counts, with progress.', inputSchema: z.object({ to: z.number() }) },
    async ({ to }, ctx) => {
      for (let number = 1; number <= to; number += 1) await progress(ctx, number, to);
      return text(`counted to ${to}`);
    },
  );
  server.registerTool(
    'count-for-ever',
    { description: 'Counts until it is cancelled, and writes that down.', inputSchema: z.object({ label: z.string() }) },
    async ({ label }, ctx) => {
      for (let number = 1; !ctx.mcpReq.signal.aborted; number += 1) {
        await progress(ctx, number);
        await new Promise(resolve => setTimeout(resolve, 50));
      }
      appendFileSync(process.env.JOURNAL, `${label}\n`);
      return text('cancelled');
    },
  );
  server.registerTool(
    'say',
    { description: 'Logs a text.', inputSchema: z.object({ text: z.string() }) },
    async ({ text: words }, ctx) => {
      await ctx.mcpReq.log('warning', words, 'notes');
      return text('said');
    },
  );
  server.registerTool('ask', { description: 'Asks the user for a colour, then for a number.' }, async ctx => {
    const answers = { colour: inputResponse(ctx.mcpReq.inputResponses, 'colour') };
    answers.number = inputResponse(ctx.mcpReq.inputResponses, 'number');
    const state = ctx.mcpReq.requestState();
    if (state === undefined && answers.colour.kind === 'missing') {
      const question = { message: 'Which colour?', requestedSchema: z.object({ colour: z.string() }) };
      return inputRequired({ inputRequests: { colour: inputRequired.elicit(question) }, requestState: 'colour' });
    }
    if (state === 'colour') {
      if (answers.colour.action !== 'accept') return text(`the user chose to ${answers.colour.action}`);
      const { colour } = answers.colour.content;
      const question = { message: `How many ${colour} ones?`, requestedSchema: z.object({ number: z.number() }) };
      return inputRequired({ inputRequests: { number: inputRequired.elicit(question) }, requestState: `=${colour}` });
    }
    return text(`${answers.number.content.number} ${state.slice(1)} ones`);
  });
  server.registerTool('think', { description: 'Asks the model of the client.' }, async ctx => {
    const answer = inputResponse(ctx.mcpReq.inputResponses, 'thought');
    if (answer.kind !== 'missing') return text(`it thinks: ${answer.result.content.text}`);
    const messages = [{ role: 'user', content: { type: 'text', text: 'What is six times seven?' } }];
    return inputRequired({ inputRequests: { thought: inputRequired.createMessage({ messages, maxTokens: 10 }) } });
  });
  const note = uri => ({ contents: [{ uri, mimeType: 'text/plain', text: notes.get(uri.slice(7)) ?? '' }] });
  server.registerResource('one', 'note://one', { mimeType: 'text/plain' }, async uri => note(uri.href));
  server.registerResource(
    'any',
    new ResourceTemplate('note://{name}', {
      list: undefined,
      complete: { name: start => [...notes.keys()].filter(name => name.startsWith(start)) },
    }),
    { mimeType: 'text/plain' },
    async uri => note(uri.href),
  );
  const language = completable(z.string(), start => ['rust', 'ruby', 'python'].filter(word => word.startsWith(start)));
  server.registerPrompt(
    'review',
    { description: 'Asks for a review.', argsSchema: z.object({ language }) },
    ({ language: word }) => ({ messages: [{ role: 'user', content: { type: 'text', text: `Review this ${word}.` } }] }),
  );
  return server;
}

function addExtras(server) {
  const contents = [{ uri: 'extra://one', text: 'extra' }];
  const messages = [{ role: 'user', content: { type: 'text', text: 'extra' } }];
  return [
    server.registerTool('extra', { description: 'An extra.' }, async () => text('extra')),
    server.registerResource('extra', 'extra://one', {}, async () => ({ contents })),
    server.registerPrompt('extra', { description: 'An extra.' }, () => ({ messages })),
  ];
}

async function progress(ctx, number, total) {
  const progressToken = ctx.mcpReq._meta?.progressToken;
  if (progressToken === undefined) return;
  await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress: number, total } });
}

serveStdio(build);
