// A client built on the official TypeScript SDK: goes through everything, and says what it saw as JSON.
//
//     client.mjs TARGET    a URL, or a JSON list with a command

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [, , where] = process.argv;
const [command, ...args] = where.startsWith('http') ? [] : JSON.parse(where);
const transport = command === undefined
  ? new StreamableHTTPClientTransport(new URL(where))
  : new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' });

const client = new Client({ name: 'test', version: '1.0.0' }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { sure: true } }));
await client.connect(transport);

const seen = (result) => ({
  text: result.content.filter((block) => block.type === 'text').map((block) => block.text),
  structured: result.structuredContent ?? null,
  error: result.isError === true,
  replayed: result._meta?.['semel/replayed'] === true,
  code: result._meta?.['semel/code'] ?? null,
  key: result._meta?.['semel/idempotencyKey'] ?? null,
});
const call = async (name, given, more, options) => {
  try {
    return seen(await client.callTool({ name, arguments: given, ...more }, undefined, options));
  } catch (error) {
    return { text: [error.message], structured: null, error: true, replayed: false, code: null, key: null };
  }
};
const twice = async (...given) => [await call(...given), await call(...given)];

const said = {};
said.tools = {};
for (let cursor; ;) {
  const page = await client.listTools({ cursor });
  for (const tool of page.tools) said.tools[tool.name] = Object.keys(tool.inputSchema.properties ?? {}).sort();
  if ((cursor = page.nextCursor) === undefined) break;
}
said.without = await twice('act', { what: 'plain' });
const one = { what: 'one', idempotencyKey: 'k-1' };
said.key = [...(await twice('act', one)), await call('act', one)];
said.other_name = await call('act', { what: 'one', idempotency_key: 'k-1' });
said.meta = await call('act', { what: 'one' }, { _meta: { idempotencyKey: 'k-1' } });
said.mismatch = await call('act', { what: 'two', idempotencyKey: 'k-1' });
said.bad_key = await call('act', { what: 'two', idempotencyKey: 'not a key' });
said.own_key = await twice('own_key', { what: 'x', idempotency_key: 'k-own' });
said.downstream = await twice('downstream', { what: 'x', idempotencyKey: 'k-down' });
said.progress = [];
const onprogress = ({ progress, total, message }) => said.progress.push([progress, total, message]);
said.slowly = await call('slowly', { what: 'p', idempotencyKey: 'k-slow' }, {}, { onprogress });
said.asked = await twice('ask', { what: 'a', idempotencyKey: 'k-ask' });
said.read_only = await twice('count', {});
said.failed = await twice('fail', { what: 'f', idempotencyKey: 'k-fail' });
said.unknown_tool = await call('no_such_tool', { idempotencyKey: 'k-no' });
said.status = await call('semel_status', { tool: 'act', idempotencyKey: 'k-1' });
said.no_status = await call('semel_status', { tool: 'act', idempotencyKey: 'k-none' });
const together = { what: 't', seconds: 0.5, idempotencyKey: 'k-t' };
said.together = await Promise.all(Array.from({ length: 5 }, () => call('act', together)));
said.resource = (await client.readResource({ uri: 'notes://a' })).contents[0].text;
said.prompt = (await client.getPrompt({ name: 'greet', arguments: { name: 'Ann' } })).messages[0].content.text;
await client.close();
console.log(JSON.stringify(said));
