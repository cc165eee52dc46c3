/** A client process that is killed and started again until its orders are done: URL, outbox, results, how many. */
import { appendFile, readFile } from "node:fs/promises";
import { type Call, Client, RetryBudget } from "../../src/index.js";
import { Outbox } from "../../src/outbox.js";

const [url = "", folder = "", results = "", count = "0"] = process.argv.slice(2);
const client = new Client({
  baseUrl: url,
  retry: { maxAttempts: 60, base: 10, cap: 100, attemptTimeout: 1000, totalTimeout: 120_000 },
  budget: new RetryBudget(1e9),
  outbox: await Outbox.open(folder),
});

async function keep(call: Call, order: string, text: string): Promise<void> {
  const { receipt } = JSON.parse(text) as { receipt: string };
  // One write to a file in append mode: a line is whole or not there.
  await appendFile(results, `${JSON.stringify({ order, key: call.key, receipt })}\n`, { flush: true });
}

await client.resume(async (call) => {
  if (call.sent) await keep(call, call.name, (await call.send()).text());
});
const lines = (await readFile(results, "utf8").catch(() => "")).split("\n").filter((line) => line !== "");
const done = new Set(lines.map((line) => (JSON.parse(line) as { order: string }).order));
const todo = Array.from({ length: Number(count) }, (_, number) => `restart-${number}`).filter((name) => !done.has(name));
await Promise.all(
  Array.from({ length: 8 }, async () => {
    for (let order = todo.shift(); order !== undefined; order = todo.shift()) {
      const name = order;
      await client.call(name, async (call) => {
        await keep(call, name, (await call.post("/charges", { json: { order: name } })).text());
      });
    }
  }),
);
