/** Jobs over the real server: enqueued once, whoever submits, through a bad network too. */
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Conflict, EffectFailed, RetryBudget, newKey } from "../src/index.js";
import { Queue } from "../src/jobs.js";
import { Chaos } from "./support/chaos.js";
import { type Running, needs, sidecar } from "./support/servers.js";

const RETRY = { maxAttempts: 60, base: 10, cap: 100, attemptTimeout: 2000, totalTimeout: 60_000 };
let way: Running;

beforeAll(async () => {
  // Jobs need a store that has a queue beside its records.
  const store = needs("SEMEL_TEST_POSTGRES_URL", "cargo xtask services up postgres");
  way = await sidecar("http://127.0.0.1:9", store, ["jobs.enabled=true"]);
  process.env["SIDECAR_URL"] = way.url;
});
afterAll(() => way.stop());

const kind = () => `sdk-${randomBytes(6).toString("hex")}`;
const queueAt = (url: string) => new Queue({ url, retry: RETRY, budget: new RetryBudget(1e9) });

interface Leased {
  job_id: string;
  lease_token: string;
  params: unknown;
}

async function call(path: string, body: object): Promise<unknown> {
  const response = await fetch(`${way.url}/mesh/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  expect(response.status).toBe(200);
  return response.json();
}

async function lease(name: string, wait: number): Promise<Leased[]> {
  const body = { worker: "w-1", kinds: [name], max_jobs: 100, lease_ms: 60_000, wait_ms: wait };
  return ((await call("lease", body)) as { jobs: Leased[] }).jobs;
}

test("a job submitted many times is enqueued once", async () => {
  const [name, idempotencyKey, queue] = [kind(), newKey(), queueAt(way.url)];
  const submit = (params: object) => queue.submit(name, params, { idempotencyKey, idempotencyTtlDays: 30 });
  const jobs = [await submit({ b: 1, a: 2 }), await submit({ a: 2, b: 1 })];
  expect(jobs.map((job) => [job.status, job.dedup])).toEqual([
    ["accepted", false],
    ["in_progress", true],
  ]);
  expect(new Set(jobs.map((job) => job.id)).size).toBe(1);
  await expect(submit({ a: 3 })).rejects.toBeInstanceOf(Conflict);
  const [leased] = await lease(name, 5000);
  await call(`jobs/${leased!.job_id}/complete`, { lease_token: leased!.lease_token, result: { charge: "ch_1" } });
  expect((await queue.wait(jobs[0]!.id)).result).toEqual({ charge: "ch_1" });
  expect((await submit({ a: 2, b: 1 })).result).toEqual({ charge: "ch_1" });
});

test("a job that failed for good says so", async () => {
  const [name, queue] = [kind(), queueAt(way.url)];
  const job = await queue.submit(name, null);
  const [leased] = await lease(name, 5000);
  await call(`jobs/${leased!.job_id}/fail`, { lease_token: leased!.lease_token, error: "no such customer", retryable: false });
  const ended = await queue.wait(job.id);
  expect(() => ended.result).toThrow(EffectFailed);
});

test("submissions through a bad network are enqueued once", async () => {
  const name = kind();
  const proxy = await new Chaos(way.url, Number(process.env["SEMEL_TEST_SEED"] ?? 7), 2500).start();
  try {
    const queue = queueAt(proxy.url);
    const numbers = Array.from({ length: 100 }, (_, number) => number);
    // Half of them have no key of their own: a retry must not enqueue those twice either.
    const jobs = await Promise.all(numbers.map((number) => queue.submit(name, number)));
    const keyed = await Promise.all(
      numbers.map((number) => queue.submit(name, number % 50, { idempotencyKey: `${name}-${number % 50}` })),
    );
    expect([new Set(jobs.map((job) => job.id)).size, new Set(keyed.map((job) => job.id)).size]).toEqual([100, 50]);
  } finally {
    await proxy.stop();
  }
  let leased = 0;
  for (let found = await lease(name, 0); found.length > 0; found = await lease(name, 0)) leased += found.length;
  expect(leased).toBe(150);
});

test("the example", async () => {
  const { orderCharge } = await import("../examples/queue-submit.js");
  const jobs = [await orderCharge("ORD-123", 100), await orderCharge("ORD-123", 100)];
  expect(jobs[0]!.id).toBe(jobs[1]!.id);
});
