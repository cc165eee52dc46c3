// A server built on the official TypeScript SDK. Every act is a line in the file LEDGER, so that a test can count them.

import { appendFileSync, readFileSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import {
  CallToolRequestSchema,
  ElicitResultSchema,
  ErrorCode,
  GetPromptRequestSchema,
  ListPromptsRequestSchema,
  ListResourcesRequestSchema,
  ListToolsRequestSchema,
  McpError,
  ReadResourceRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';

const note = (text) => {
  appendFileSync(process.env.LEDGER, `${text}\n`);
  return readFileSync(process.env.LEDGER, 'utf8').split('\n').length - 1;
};
const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const what = { type: 'object', properties: { what: { type: 'string' }, seconds: { type: 'number' } }, required: ['what'] };
const additive = { destructiveHint: false };

const tools = [
  { name: 'act', description: 'Acts, after a while.', inputSchema: { ...what, additionalProperties: false } },
  { name: 'fail', description: 'Acts, and says that it failed.', inputSchema: what, annotations: additive },
  { name: 'count', description: 'How many acts there were.', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } },
  { name: 'slowly', description: 'Acts, and reports progress.', inputSchema: what, annotations: additive },
  { name: 'ask', description: 'Asks the user first.', inputSchema: what, annotations: additive },
  { name: 'own_key', description: 'Takes a key itself.', inputSchema: { type: 'object', properties: { what: { type: 'string' }, idempotency_key: { type: 'string' } } }, annotations: additive },
  { name: 'downstream', description: 'Says which key it would pass on.', inputSchema: what, annotations: additive },
];
const text = (said, more = {}) => ({ content: [{ type: 'text', text: String(said) }], ...more });

async function call(server, { name, arguments: args = {}, _meta: meta }, extra) {
  switch (name) {
    case 'act': {
      for (const given of Object.keys(args)) {
        if (!(given in what.properties)) throw new McpError(ErrorCode.InvalidParams, `unknown argument ${given}`);
      }
      await later((args.seconds ?? 0) * 1000);
      if (extra.signal.aborted) return text('cancelled', { isError: true });
      const line = note(`act ${args.what}`);
      return text(JSON.stringify({ line }), { structuredContent: { line } });
    }
    case 'fail':
      note(`fail ${args.what}`);
      return text('it does not work', { isError: true });
    case 'count': {
      const lines = note('count') - 1;
      return text(lines, { structuredContent: { lines } });
    }
    case 'slowly':
      for (let step = 1; step <= 3; step++) {
        if (meta?.progressToken !== undefined) {
          await extra.sendNotification({
            method: 'notifications/progress',
            params: { progressToken: meta.progressToken, progress: step, total: 3, message: `step ${step}` },
          });
        }
        await later((args.seconds ?? 0.02) * 1000);
      }
      note(`slowly ${args.what}`);
      return text(args.what);
    case 'ask': {
      const requestedSchema = { type: 'object', properties: { sure: { type: 'boolean' } }, required: ['sure'] };
      const params = { mode: 'form', message: 'Sure?', requestedSchema };
      const answer = await extra.sendRequest({ method: 'elicitation/create', params }, ElicitResultSchema);
      note(`ask ${args.what} ${answer.action}`);
      return text(answer.action);
    }
    case 'own_key':
      note(`own ${args.what}`);
      return text(args.idempotency_key);
    case 'downstream':
      note(`downstream ${args.what}`);
      return text(meta?.['semel/downstreamKey']);
    default:
      throw new McpError(ErrorCode.InvalidParams, `unknown tool ${name}`);
  }
}

function make() {
  const capabilities = { tools: { listChanged: true }, resources: {}, prompts: {} };
  const server = new Server({ name: 'tools', version: '1.0.0' }, { capabilities, instructions: 'For tests.' });
  // Three to a page, so that lists have to be asked for several times.
  server.setRequestHandler(ListToolsRequestSchema, ({ params }) => {
    const from = Number(params?.cursor ?? 0);
    const nextCursor = from + 3 < tools.length ? String(from + 3) : undefined;
    return { tools: tools.slice(from, from + 3), ...(nextCursor && { nextCursor }) };
  });
  server.setRequestHandler(CallToolRequestSchema, ({ params }, extra) => call(server, params, extra));
  server.setRequestHandler(ListResourcesRequestSchema, () => ({ resources: [{ uri: 'notes://a', name: 'a' }] }));
  server.setRequestHandler(ReadResourceRequestSchema, ({ params }) => ({ contents: [{ uri: params.uri, text: 'the note a' }] }));
  server.setRequestHandler(ListPromptsRequestSchema, () => ({ prompts: [{ name: 'greet', arguments: [{ name: 'name' }] }] }));
  server.setRequestHandler(GetPromptRequestSchema, ({ params }) => ({
    messages: [{ role: 'user', content: { type: 'text', text: `Greet ${params.arguments.name}.` } }],
  }));
  return server;
}

/** Events by their number, so that a stream that broke off can be taken up again. */
class Events {
  events = [];

  async storeEvent(streamId, message) {
    this.events.push({ streamId, message });
    return String(this.events.length);
  }

  async getStreamIdForEventId(id) {
    return this.events[Number(id) - 1]?.streamId;
  }

  async replayEventsAfter(last, { send }) {
    const streamId = this.events[Number(last) - 1].streamId;
    for (let at = Number(last); at < this.events.length; at++) {
      const event = this.events[at];
      if (event.streamId === streamId) await send(String(at + 1), event.message);
    }
    return streamId;
  }
}

const [, , port, keeps] = process.argv;
if (port === undefined) {
  await make().connect(new StdioServerTransport());
} else {
  const sessions = new Map();
  createServer(async (request, response) => {
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (transport === undefined) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: (id) => void sessions.set(id, transport),
        eventStore: keeps === 'events' ? new Events() : undefined,
      });
      await make().connect(transport);
    }
    await transport.handleRequest(request, response);
  }).listen(Number(port), '127.0.0.1');
}
