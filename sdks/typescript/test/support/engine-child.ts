/** A worker on the engine in its process, which is killed and started again: URL, environment, files, how many. */
import { appendFileSync } from "node:fs";
import { InDoubt } from "../../src/index.js";
import { open } from "../../src/open.js";

const [url = "", environment = "", effects = "", answers = "", count = "0", lanes = "1"] = process.argv.slice(2);
const terms = { crash: "hold", leaseMs: 2000, waitMs: 10_000 } as const;
const once = await open(url, { environment, terms, retry: { base: 10, cap: 200, totalTimeout: 240_000 } });

async function ask(key: string): Promise<void> {
  let answer: string;
  try {
    // One write to a file in append mode: a line is whole or not there.
    const effect = () => (appendFileSync(effects, `${key}\n`), `answer of ${key}`);
    answer = (await once.run({ scope: "work", key, payload: { of: key } }, effect)).value;
  } catch (error) {
    if (!(error instanceof InDoubt)) throw error;
    answer = "in doubt";
  }
  appendFileSync(answers, `${JSON.stringify({ key, answer })}\n`);
}

// Each key twice, and the two next to each other.
const todo = Array.from({ length: 2 * Number(count) }, (_, number) => `k-${number >> 1}`);
await Promise.all(
  Array.from({ length: Number(lanes) }, async () => {
    for (let key = todo.shift(); key !== undefined; key = todo.shift()) await ask(key);
  }),
);
