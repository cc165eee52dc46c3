/** Calls through a network that drops, delays, duplicates and truncates: every effect once, one key for each call. */
import { spawn } from "node:child_process";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";
import { expect, test } from "vitest";
import { type Answer, Client, RetryBudget, Semel, newKey } from "../src/index.js";
import { Chaos, FAULTS, seeded } from "./support/chaos.js";
import { Payments, ended, sidecar, sleep } from "./support/servers.js";

const SEED = Number(process.env["SEMEL_TEST_SEED"] ?? 7);
const CALLS = 2000;
const RETRY = { maxAttempts: 60, base: 10, cap: 100, attemptTimeout: 1000, totalTimeout: 120_000 };
const LIMIT = 300_000;

async function inTurns<T>(at: number, work: (() => Promise<T>)[]): Promise<T[]> {
  const todo = [...work.entries()];
  const out = Array.from<T>({ length: work.length });
  const lane = async () => {
    for (let next = todo.shift(); next; next = todo.shift()) out[next[0]] = await next[1]();
  };
  await Promise.all(Array.from({ length: at }, lane));
  return out;
}

async function behindChaos<T>(use: (proxy: Chaos, payments: Payments) => Promise<T>, delay = 1500): Promise<T> {
  const payments = new Payments();
  const service = await payments.start();
  const way = await sidecar(service.url);
  const proxy = await new Chaos(way.url, SEED, delay).start();
  try {
    return await use(proxy, payments);
  } finally {
    await proxy.stop();
    await way.stop();
    await service.stop();
  }
}

function metAllFaults(proxy: Chaos): void {
  expect([...proxy.faults.keys()].sort(), `seed ${SEED}`).toEqual(Object.keys(FAULTS).sort());
}

const most = (counts: Iterable<number>) => Math.max(...counts);

test("two thousand calls act once each", { timeout: LIMIT }, () =>
  behindChaos(async (proxy, payments) => {
    const client = new Client({ baseUrl: proxy.url, retry: RETRY, budget: new RetryBudget(1e9) });
    const orders = Array.from({ length: CALLS }, (_, number) => `order-${number}`);
    const answers: Answer[] = await inTurns(32, orders.map((order) => () => client.post("/charges", { json: { order } })));
    metAllFaults(proxy);
    expect(payments.effects.size).toBe(CALLS);
    expect(most(payments.effects.values()), `seed ${SEED}`).toBe(1);
    for (const [number, order] of orders.entries()) {
      expect(answers[number]?.json()).toEqual({ order, receipt: payments.receipts.get(order) });
    }
    expect(proxy.keys.size).toBe(CALLS);
    expect(most([...proxy.keys.values()].map((keys) => keys.size))).toBe(1);
    const attempts = answers.reduce((sum, answer) => sum + answer.attempts, 0);
    expect(attempts).toBeGreaterThan(CALLS * 1.3);
    console.log(`${CALLS} calls, ${attempts} attempts, ${proxy.requests} requests`, Object.fromEntries(proxy.faults));
  }));

test("a client that makes keys anew is caught", { timeout: LIMIT }, () =>
  behindChaos(async (proxy, payments) => {
    for (let number = 0; number < 100; number++) {
      for (let attempt = 0; attempt < 60; attempt++) {
        const headers = { "Content-Type": "application/json", "Idempotency-Key": newKey() };
        const sent = fetch(`${proxy.url}/charges`, { method: "POST", headers, body: JSON.stringify({ order: `order-${number}` }) });
        if (await sent.then((response) => response.text()).then(() => true, () => false)) break;
      }
    }
    expect(most(payments.effects.values())).toBeGreaterThan(1);
    expect(most([...proxy.keys.values()].map((keys) => keys.size))).toBeGreaterThan(1);
  }, 100));

test("keys survive a client that is killed", { timeout: LIMIT }, () =>
  behindChaos(async (proxy, payments) => {
    const count = 300;
    const chance = seeded(SEED);
    const folder = await mkdtemp(join(tmpdir(), "semel-killed-"));
    const results = join(folder, "results");
    const entry = fileURLToPath(new URL("support/chaos-child.ts", import.meta.url));
    const outDir = fileURLToPath(new URL(`../node_modules/.semel-${process.pid}`, import.meta.url));
    // Node 20 reads no TypeScript by itself.
    await build({ logLevel: "error", configFile: false, build: { ssr: entry, outDir, emptyOutDir: true, target: "node20" } });
    const program = join(outDir, "chaos-child.js");
    let kills = 0;
    for (;;) {
      const child = spawn(process.execPath, [program, proxy.url, join(folder, "outbox"), results, String(count)], {
        stdio: "inherit",
      });
      // Spared after a dozen, so that it gets to an end.
      const life = kills < 12 ? 300 + chance() * 500 : LIMIT;
      await Promise.race([ended(child), sleep(life)]);
      if (child.exitCode !== null) {
        expect(child.exitCode).toBe(0);
        break;
      }
      child.kill("SIGKILL");
      await ended(child);
      kills += 1;
    }
    await rm(outDir, { recursive: true });
    const lines = (await readFile(results, "utf8")).trim().split("\n");
    const parsed = lines.map((line) => JSON.parse(line) as { order: string; receipt: string });
    const kept = new Map(parsed.map(({ order, receipt }) => [order, receipt]));
    expect(kills).toBeGreaterThanOrEqual(5);
    expect(most(payments.effects.values()), `seed ${SEED}`).toBe(1);
    expect(kept).toEqual(payments.receipts);
    expect(kept.size).toBe(count);
    expect(most([...proxy.keys.values()].map((keys) => keys.size)), "one key over all processes").toBe(1);
    expect((await readdir(join(folder, "outbox"))).filter((file) => file.endsWith(".call"))).toEqual([]);
  }));

test("a worker behind such a network runs each effect once", { timeout: LIMIT }, () =>
  behindChaos(async (proxy) => {
    const effects = new Map<string, number>();
    const semel = new Semel({ url: `${proxy.url}/_semel`, retry: RETRY, budget: new RetryBudget(1e9) });
    const work = Array.from({ length: 600 }, (_, number) => async () => {
      const key = `work-${number >> 1}`;
      const found = await semel.run({ scope: "work", key, payload: { of: key } }, async () => {
        effects.set(key, (effects.get(key) ?? 0) + 1);
        await sleep(5);
        return effects.get(key) ?? 0;
      });
      return found.value;
    });
    const values = await inTurns(16, work);
    metAllFaults(proxy);
    expect(effects.size).toBe(300);
    expect(most(effects.values()), `seed ${SEED}`).toBe(1);
    expect(new Set(values)).toEqual(new Set([1]));
  }));
