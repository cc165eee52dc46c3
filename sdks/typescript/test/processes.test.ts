/** The engine in processes that are killed and that end, in worker threads, and over connections that are cut. */
import type { ChildProcess } from "node:child_process";
import { mkdtemp, readFile, readdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { open } from "../src/open.js";
import { type Built, built } from "./support/built.js";
import { Cuts } from "./support/cuts.js";
import { ended, needs, sleep } from "./support/servers.js";
import { STORES, newEnvironment, storeUrl } from "./support/ways.js";

const SEED = Number(process.env["SEMEL_TEST_SEED"] ?? 7);
const LIMIT = 300_000;
const SHARED = STORES.filter((kind) => kind !== "memory");
const SERVERS = SHARED.filter((kind) => kind !== "sqlite");

const programs: Record<string, Built> = {};
const program = (name: string): Built => programs[name] ?? expect.fail(`${name} was not built`);
beforeAll(async () => {
  for (const name of ["engine-child", "ends-child", "thread-child"]) programs[name] = await built(name);
});
afterAll(() => Object.values(programs).forEach(({ remove }) => remove()));

async function said(child: ChildProcess): Promise<[code: number | null, text: string]> {
  let text = "";
  child.stdout?.on("data", (chunk: Buffer) => (text += chunk.toString()));
  const timer = setTimeout(() => child.kill("SIGKILL"), 60_000);
  await ended(child);
  clearTimeout(timer);
  return [child.exitCode, text];
}

describe("a process ends", () => {
  test.each([...STORES])("that never closes its store: %s", async (kind) => {
    expect(await said(program("ends-child").start("open", storeUrl(kind), newEnvironment()))).toEqual([0, "ran\n"]);
  });

  test("that closes it", async () => {
    expect(await said(program("ends-child").start("closed"))).toEqual([0, "ran\n"]);
  });

  test("that exits while calls are under way", async () => {
    for (let turn = 0; turn < 5; turn++) expect(await said(program("ends-child").start("exit-in-calls"))).toEqual([0, "ran\n"]);
  });

  test("only after the calls that are under way", async () => {
    expect(await said(program("ends-child").start("waits"))).toEqual([0, "ran\nreplayed\n"]);
  });
});

const lines = async (file: string): Promise<string[]> => {
  const text = await readFile(file, "utf8").catch(() => "");
  return text.split("\n").filter((line) => line !== "");
};

describe.each(SHARED.filter((kind) => kind !== "postgres"))("%s", (kind) => {
  test("a thousand calls of a process that is killed run nothing twice", { timeout: LIMIT }, async () => {
    const [keys, lanes, kills] = [500, 8, 4];
    const folder = await mkdtemp(join(tmpdir(), "semel-killed-"));
    const [effects, answers] = [join(folder, "effects"), join(folder, "answers")];
    const args = [storeUrl(kind), newEnvironment(), effects, answers, String(keys), String(lanes)];
    for (let kill = 1; kill <= kills; kill++) {
      const child = program("engine-child").start(...args);
      while ((await lines(effects)).length < (kill * keys) / (kills + 1) && child.exitCode === null) await sleep(5);
      expect(child.exitCode, "it was to be killed at work").toBeNull();
      child.kill("SIGKILL");
      await ended(child);
    }
    expect((await said(program("engine-child").start(...args)))[0]).toBe(0);
    const ran = await lines(effects);
    expect(new Set(ran).size, "nothing ran twice").toBe(ran.length);
    const told = new Map<string, Set<string>>();
    for (const line of await lines(answers)) {
      const { key, answer } = JSON.parse(line) as { key: string; answer: string };
      told.set(key, (told.get(key) ?? new Set()).add(answer));
    }
    const doubts = [...told].filter(([, found]) => found.has("in doubt")).map(([key]) => key);
    expect(told.size).toBe(keys);
    expect(doubts.length).toBeLessThanOrEqual(lanes * kills);
    expect([...told.values()].every((found) => found.size === 1), "one answer for all who ask").toBe(true);
    expect(new Set([...ran, ...doubts])).toEqual(new Set(told.keys()));
  });
});

describe("worker threads", () => {
  const start = (url: string, environment: string, keys: number, busy = false) =>
    new Worker(program("thread-child").program, { workerData: { url, environment, keys, busy } });
  const told = (worker: Worker) =>
    new Promise<string[]>((resolve, reject) => {
      worker.once("message", resolve);
      worker.once("error", reject);
    });
  const exited = (worker: Worker) => new Promise((resolve) => worker.once("exit", resolve));

  test.each(SHARED)("each open a store, and share its keys: %s", async (kind) => {
    const [url, environment] = [storeUrl(kind), newEnvironment()];
    const workers = Array.from({ length: 4 }, () => start(url, environment, 50));
    const ends = workers.map(exited);
    const ran = (await Promise.all(workers.map(told))).flat();
    expect(ran.sort()).toEqual(Array.from({ length: 50 }, (_, number) => `k-${number}`).sort());
    expect(await Promise.all(ends)).toEqual([0, 0, 0, 0]);
  });

  test("that are terminated in the middle of a call disturb no other", async () => {
    const here = await open("memory://");
    for (let turn = 0; turn < 5; turn++) {
      const worker = start("memory://", "", 1, true);
      await told(worker);
      await sleep(20);
      await worker.terminate();
      expect((await here.run({ scope: "threads", key: `k-${turn}` }, () => turn)).value).toBe(turn);
    }
    await here.close();
  });
});

test.skipIf(process.platform !== "linux")("threads and memory stay flat", async () => {
  const threads = async () => (await readdir("/proc/self/task")).length;
  const calls = async (count: number) => {
    const once = await open("memory://?capacity=1000");
    for (let number = 0; number < count; number++) await once.run({ scope: "flat", key: `k-${number % 100}` }, () => ({ number }));
    await once.close();
  };
  await calls(2000);
  const [before, memory] = [await threads(), process.memoryUsage().rss];
  for (let turn = 0; turn < 20; turn++) await calls(200);
  for (let turn = 0; turn < 100 && (await threads()) > before; turn++) await sleep(50);
  expect(await threads()).toBeLessThanOrEqual(before);
  expect(process.memoryUsage().rss).toBeLessThan(memory + 64 * 1024 * 1024);
});

describe.each(SERVERS)("%s over connections that are cut", (kind) => {
  test("each effect once", { timeout: LIMIT }, async () => {
    const url = new URL(needs(`SEMEL_TEST_${kind.toUpperCase()}_URL`, "cargo xtask services up"));
    const proxy = await new Cuts(url.hostname, Number(url.port), SEED).start();
    url.port = String(proxy.port);
    const retry = { maxAttempts: 1000, base: 10, cap: 100, totalTimeout: 240_000 };
    const once = await open(url.href, { environment: newEnvironment(), retry });
    const effects = new Map<string, number>();
    proxy.cutting = true;
    const todo = Array.from({ length: 600 }, (_, number) => `work-${number >> 1}`);
    const values = new Set<number>();
    const lane = async () => {
      for (let key = todo.shift(); key !== undefined; key = todo.shift()) {
        const name = key;
        const effect = async () => {
          effects.set(name, (effects.get(name) ?? 0) + 1);
          await sleep(2);
          return effects.get(name) ?? 0;
        };
        values.add((await once.run({ scope: "work", key, payload: { of: key } }, effect)).value);
      }
    };
    await Promise.all(Array.from({ length: 16 }, lane));
    proxy.cutting = false;
    expect(proxy.cut, "connections were cut").toBeGreaterThan(10);
    expect(effects.size).toBe(300);
    expect([new Set(effects.values()), values], `seed ${SEED}`).toEqual([new Set([1]), new Set([1])]);
    await once.close();
    await proxy.stop();
  });
});
