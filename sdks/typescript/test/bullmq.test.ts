/** BullMQ on a real Redis: jobs that run again, or are added twice, have their effect once. */
import { randomBytes } from "node:crypto";
import { type ConnectionOptions, DelayedError, type Job, type Processor, Queue, QueueEvents, UnrecoverableError, Worker } from "bullmq";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { idempotentProcessor } from "../src/bullmq.js";
import { FakeSemel } from "../src/testing.js";
import { type Running, needs, sidecar, sleep } from "./support/servers.js";
import { STORES, wayOf } from "./support/ways.js";

const at = new URL(needs("SEMEL_TEST_REDIS_URL", "cargo xtask services up redis"));
const connection: ConnectionOptions = { host: at.hostname, port: Number(at.port) };

interface Order {
  order: string;
  cents: number;
}

let queue: Queue<Order, string>;
let events: QueueEvents;
let workers: { close: () => Promise<void> }[];
beforeEach(async () => {
  queue = new Queue(`semel-test-${randomBytes(6).toString("hex")}`, { connection });
  events = new QueueEvents(queue.name, { connection });
  workers = [];
  await events.waitUntilReady();
});
afterEach(async () => {
  for (const worker of workers) await worker.close();
  await events.close();
  await queue.obliterate({ force: true });
  await queue.close();
});

function working(processor: Processor<Order, string>): void {
  workers.push(new Worker(queue.name, processor, { connection }));
}
const add = (order: Order, attempts = 3): Promise<Job<Order, string>> => queue.add("charge", order, { attempts });
const ended = (job: Job<Order, string>): Promise<string> => job.waitUntilFinished(events, 20_000);
const reload = async (job: Job<Order, string>) => Job_(await queue.getJob(job.id ?? ""));
const Job_ = (job: Job<Order, string> | undefined): Job<Order, string> => job ?? expect.fail("the job is gone");

describe("a processor", () => {
  test("whose worker dies before the queue knows acts once", async () => {
    const fake = new FakeSemel();
    let effects = 0;
    const once = idempotentProcessor<Order, string>(() => Promise.resolve(`ch_${++effects}`), { semel: fake.semel() });
    working(async (job, token) => {
      const value = await once(job, token);
      if (job.attemptsMade === 0) throw new Error("died");
      return value;
    });
    const job = await add({ order: "o-1", cents: 5 });
    expect([await ended(job), effects, (await reload(job)).attemptsMade]).toEqual(["ch_1", 1, 2]);
    // Another job is other work, also with the same data.
    expect([await ended(await add({ order: "o-1", cents: 5 })), effects]).toEqual(["ch_2", 2]);
    // An emptied queue counts its ids from 1 again.
    await queue.obliterate({ force: true });
    await sleep(5);
    const anew = await add({ order: "o-1", cents: 5 });
    expect([anew.id, await ended(anew), effects]).toEqual([job.id, "ch_3", 3]);
  });

  test("with a key from the data acts once for all jobs that have it", async () => {
    const fake = new FakeSemel();
    let effects = 0;
    const key = (job: Job<Order, string>) => `charge-${job.data.order}`;
    working(idempotentProcessor<Order, string>(() => Promise.resolve(`ch_${++effects}`), { semel: fake.semel(), key }));
    const jobs = [await add({ order: "o-1", cents: 5 }), await add({ order: "o-1", cents: 5 })];
    expect([await Promise.all(jobs.map(ended)), effects]).toEqual([["ch_1", "ch_1"], 1]);
    // Another amount under the same key is a mistake that no attempt mends.
    const other = await add({ order: "o-1", cents: 6 });
    await expect(ended(other)).rejects.toThrow("Conflict");
    expect([(await reload(other)).attemptsMade, effects]).toEqual([1, 1]);
    expect(fake.state(queue.name, "charge-o-1")).toBe("completed");
  });

  test("that fails is run again, unless it fails for good", async () => {
    const fake = new FakeSemel();
    let runs = 0;
    const key = (job: Job<Order, string>) => job.data.order;
    const processor: Processor<Order, string> = (job) => {
      runs += 1;
      if (job.data.order === "declined") throw new UnrecoverableError("the card was declined");
      if (runs === 1) throw new Error("not now");
      return Promise.resolve("ch_1");
    };
    working(idempotentProcessor(processor, { semel: fake.semel(), key }));
    expect([await ended(await add({ order: "o-1", cents: 5 })), runs]).toEqual(["ch_1", 2]);
    const declined = await add({ order: "declined", cents: 5 });
    await expect(ended(declined)).rejects.toThrow("the card was declined");
    expect([(await reload(declined)).attemptsMade, runs]).toEqual([1, 3]);
    await expect(ended(await add({ order: "declined", cents: 5 }))).rejects.toThrow("failed for good");
    expect(runs).toBe(3);
  });

  test("keeps to the terms of its Semel beside its own", async () => {
    class Declined extends Error {}
    let runs = 0;
    const semel = new FakeSemel().semel({ terms: { crash: "hold", final: [Declined] } });
    const processor: Processor<Order, string> = () => {
      runs += 1;
      throw new Declined("no cover");
    };
    working(idempotentProcessor(processor, { semel }));
    const job = await add({ order: "o-1", cents: 5 });
    await expect(ended(job)).rejects.toThrow("EffectFailed");
    expect([(await reload(job)).attemptsMade, runs]).toEqual([1, 1]);
  });

  test("that is in doubt is not run again", async () => {
    let runs = 0;
    const processor: Processor<Order, string> = () => {
      runs += 1;
      throw new Error("half-way");
    };
    working(idempotentProcessor(processor, { semel: new FakeSemel().semel(), crash: "hold" }));
    const job = await add({ order: "o-1", cents: 5 });
    await expect(ended(job)).rejects.toThrow("InDoubt");
    expect([(await reload(job)).attemptsMade, runs]).toEqual([2, 1]);
  });

  test("that puts its job off frees the key, also under hold", async () => {
    let runs = 0;
    const processor: Processor<Order, string> = async (job, token) => {
      runs += 1;
      if (runs > 1) return "ch_1";
      await job.moveToDelayed(Date.now() + 50, token);
      throw new DelayedError();
    };
    working(idempotentProcessor(processor, { semel: new FakeSemel().semel(), crash: "hold" }));
    expect([await ended(await add({ order: "o-1", cents: 5 })), runs]).toEqual(["ch_1", 2]);
  });
});

describe.each(STORES)("with a store in this process: %s", (kind) => {
  test("a job whose worker dies before the queue knows acts once", async () => {
    const way = await wayOf(kind);
    let effects = 0;
    const once = idempotentProcessor<Order, string>(() => Promise.resolve(`ch_${++effects}`), { semel: way.semel() });
    working(async (job, token) => {
      const value = await once(job, token);
      if (job.attemptsMade === 0) throw new Error("died");
      return value;
    });
    const job = await add({ order: "o-1", cents: 5 });
    expect([await ended(job), effects, (await reload(job)).attemptsMade]).toEqual(["ch_1", 1, 2]);
    await way.stop();
  });
});

describe("the example", () => {
  let way: Running;
  beforeEach(async () => {
    way = await sidecar();
    process.env["SIDECAR_URL"] = `${way.url}/_semel`;
  });
  afterEach(() => way.stop());

  test("charges each order once", async () => {
    const { charges, start } = await import("../examples/bullmq-worker.js");
    workers.push(start(queue.name, connection));
    const jobs = [await add({ order: "o-1", cents: 5 }), await add({ order: "o-1", cents: 5 }), await add({ order: "o-2", cents: 20_000 })];
    expect(await Promise.all(jobs.slice(0, 2).map(ended))).toEqual(["ch_1", "ch_1"]);
    await expect(ended(jobs[2]!)).rejects.toThrow("declined");
    expect(charges).toEqual([{ order: "o-1", cents: 5, key: expect.stringMatching(/^semel-/) as string }]);
  });
});
