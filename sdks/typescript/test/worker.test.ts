/** Functions that run once: with the real sidecar, stores in this process, and the fake that this package ships for its users' tests. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  AnswerNotKept,
  Conflict,
  EffectFailed,
  Final,
  InDoubt,
  type Lease,
  LeaseLost,
  NoEffect,
  type Semel,
  type Terms,
  Unknown,
  currentLease,
  newKey,
} from "../src/index.js";
import { FakeSemel } from "../src/testing.js";
import { sleep } from "./support/servers.js";
import { WAYS, type Way, wayOf } from "./support/ways.js";

const RETRY = { base: 10, cap: 100, totalTimeout: 30_000 };

class Broken extends Error {}

describe.concurrent.each([...WAYS, "fake"])("%s", (kind) => {
  let semel: Semel;
  let way: Way | undefined;
  beforeAll(async () => {
    if (kind !== "fake") way = await wayOf(kind);
    semel = way?.semel({ retry: RETRY }) ?? new FakeSemel().semel();
  });
  afterAll(() => way?.stop());

  test("a wrapped function runs once", async () => {
    const runs: string[] = [];
    const charge = semel.idempotent(
      { scope: "charge", key: (order: { id: string; cents: number }) => order.id },
      async (order) => {
        runs.push((await currentLease()?.deriveKey("psp")) ?? "");
        await sleep(50);
        return { charge: `ch_${runs.length}`, cents: order.cents };
      },
    );
    const order = { id: newKey(), cents: 500 };
    const answers = await Promise.all(Array.from({ length: 8 }, () => charge(order)));
    expect(answers).toEqual(Array.from({ length: 8 }, () => ({ charge: "ch_1", cents: 500 })));
    expect(runs.length).toBe(1);
    await expect(charge({ ...order, cents: 501 })).rejects.toBeInstanceOf(Conflict);
  });

  const table: [string, () => Error, Terms, "runs" | "in doubt" | "failed"][] = [
    ["an error", () => new Broken(), {}, "runs"],
    ["an error under hold", () => new Broken(), { crash: "hold" }, "in doubt"],
    ["an error that means doubt", () => new Broken(), { onError: "doubt" }, "in doubt"],
    ["an error that means release", () => new Broken(), { crash: "hold", onError: "release" }, "runs"],
    ["an error by which nothing happened", () => new Broken(), { crash: "hold", noEffect: [Broken] }, "runs"],
    ["an error for good", () => new Broken("no"), { final: [Broken] }, "failed"],
    ["NoEffect", () => new NoEffect(), { crash: "hold" }, "runs"],
    ["Unknown", () => new Unknown(), {}, "in doubt"],
    ["Final", () => new Final({ why: "card" }), {}, "failed"],
  ];

  test.each(table)("what comes after %s", async (_, error, terms, then) => {
    let runs = 0;
    const operation = { ...terms, scope: "charge", key: newKey() };
    const run = () =>
      semel.run(operation, () => {
        runs += 1;
        if (runs === 1) throw error();
        return "done";
      });
    await expect(run()).rejects.toBeInstanceOf(then === "failed" ? EffectFailed : error().constructor);
    if (then === "runs") {
      expect((await run()).value).toBe("done");
      return;
    }
    const again = await run().catch((found: unknown) => found);
    expect(again).toBeInstanceOf(then === "in doubt" ? InDoubt : EffectFailed);
    expect(runs).toBe(1);
    if (then === "failed") {
      const kept = error() instanceof Final ? { why: "card" } : { error: "Error", message: "no" };
      expect(again).toMatchObject({ replayed: true, answer: kept });
    }
  });

  test("a lease is renewed while the effect runs", async () => {
    const operation = { scope: "slow", key: newKey(), leaseMs: 3000, waitMs: 20_000 };
    const first = semel.run(operation, async (lease) => {
      await sleep(8000);
      lease?.check();
      return "done";
    });
    await sleep(4000);
    const second = await semel.run(operation, () => "taken over");
    expect([(await first).value, second.value, second.replayed]).toEqual(["done", "done", true]);
  });

  test("a checkpoint reaches whoever runs next, and the loser gets the winner's answer", async () => {
    const operation = { scope: "export", key: newKey(), leaseMs: 500 };
    const stalled = await semel.run<unknown>(operation, async (lease) => {
      await lease?.saveCheckpoint({ page: 3 });
      lease?.stop();
      await sleep(1500);
      expect(() => lease?.check()).toThrow(LeaseLost);
      const next = (other: Lease | undefined) => [other?.attempt, other?.lastCheckpoint];
      expect((await semel.run<unknown>(operation, next)).value).toEqual([2, { page: 3 }]);
      return "mine";
    });
    expect([stalled.value, stalled.replayed]).toEqual([[2, { page: 3 }], true]);
  });

  test("answers that can't be kept are done all the same", async () => {
    for (const size of [0, 1024 * 1024 + 1]) {
      let runs = 0;
      const operation = { scope: "big", key: newKey() };
      const run = () =>
        semel.run<unknown>(operation, () => {
          runs += 1;
          return size > 0 ? "x".repeat(size) : 10n;
        });
      if (size > 0) expect((await run()).value).toHaveLength(size);
      else await expect(run()).rejects.toBeInstanceOf(AnswerNotKept);
      await expect(run()).rejects.toBeInstanceOf(AnswerNotKept);
      expect(runs).toBe(1);
    }
  });

  test("nothing is an answer too", async () => {
    const operation = { scope: "quiet", key: newKey() };
    const first = await semel.run(operation, () => undefined);
    const again = await semel.run(operation, () => undefined);
    expect([first.value, again.value, again.replayed]).toEqual([undefined, undefined, true]);
  });

  test("a payload may stay in the process", async () => {
    const operation = { scope: "charge", key: newKey(), compare: "fingerprint" as const };
    await semel.run({ ...operation, payload: { b: 1, a: 2 } }, () => 1);
    expect((await semel.run({ ...operation, payload: { a: 2, b: 1 } }, () => 2)).value).toBe(1);
    await expect(semel.run({ ...operation, payload: { a: 2 } }, () => 3)).rejects.toBeInstanceOf(Conflict);
  });
});

test("lost replies cost nothing but time", async () => {
  for (const lost of [1, 2, 3]) {
    const fake = new FakeSemel();
    let runs = 0;
    fake.loseReplies(lost);
    await fake.semel().run({ scope: "charge", key: "k" }, () => void (runs += 1));
    expect([runs, fake.state("charge", "k"), fake.calls.length]).toEqual([1, "completed", 2 + lost]);
  }
});
