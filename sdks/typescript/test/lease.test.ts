/** Claims whose replies come late or never, and results that can't be recorded: on the fake, with its clock. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Semel, Unrecorded } from "../src/index.js";
import type { Fetch } from "../src/send.js";
import { FakeSemel } from "../src/testing.js";

const OPERATION = { scope: "charge", key: "k" };
const RETRY = { base: 1, cap: 10, attemptTimeout: 5000, totalTimeout: 600_000 };

const now = performance.now.bind(performance);
let ahead = 0;
beforeEach(() => {
  ahead = 0;
  vi.spyOn(performance, "now").mockImplementation(() => now() + ahead);
});
afterEach(() => vi.restoreAllMocks());

/** Time for both sides: the fake and the package read the same clock. */
function passes(ms: number): void {
  ahead += ms;
}

/** A network that does something after the nth request was carried out, before its reply arrives. */
function behind(fake: FakeSemel, after: Record<number, () => Promise<void> | void>): Semel {
  let sent = 0;
  const fetch: Fetch = async (url, init) => {
    const reply = await fake.fetch(url, init);
    await after[++sent]?.();
    return reply;
  };
  return fake.semel({ fetch, retry: RETRY });
}

function lost(): never {
  throw new TypeError("lost by the test");
}

test("a claim that won long before its answer came is renewed before the effect starts", async () => {
  const fake = new FakeSemel();
  const semel = behind(fake, {
    1: () => {
      passes(35_000);
      lost();
    },
  });
  let before: string[] = [];
  await semel.run(OPERATION, () => void (before = [...fake.calls]));
  expect(before).toEqual(["claim", "claim", "renew"]);
  expect(fake.calls).toEqual(["claim", "claim", "renew", "settle"]);
});

test("a claim that was sent again in time needs no renewal", async () => {
  const fake = new FakeSemel();
  await behind(fake, { 1: lost }).run(OPERATION, () => 1);
  expect(fake.calls).toEqual(["claim", "claim", "settle"]);
});

test("what was won long ago and taken over since isn't run a second time", async () => {
  // Taken over while the reply was lost, and while the second one was on its way: the renewal tells.
  for (const turn of [1, 2]) {
    const fake = new FakeSemel();
    const ran: string[] = [];
    const another = async () => {
      await fake.semel().run(OPERATION, () => ran.push("another"));
    };
    const semel = behind(fake, {
      1: async () => {
        passes(35_000);
        if (turn === 1) await another();
        lost();
      },
      2: turn === 2 ? another : () => undefined,
    });
    const { replayed } = await semel.run(OPERATION, () => ran.push("first"));
    expect([ran, replayed]).toEqual([["another"], true]);
  }
});

test("a renewal that is answered past its own deadline starts nothing, and the key is asked for anew", async () => {
  const fake = new FakeSemel();
  const semel = behind(fake, {
    1: () => {
      passes(35_000);
      lost();
    },
    3: () => passes(35_000),
  });
  let before: string[] = [];
  await semel.run({ ...OPERATION, crash: "hold" }, () => void (before = [...fake.calls]));
  expect(before).toEqual(["claim", "claim", "renew", "settle", "claim"]);
});

test("a lease of which little is left is renewed at once, and not only at the end of its turn", async () => {
  const fake = new FakeSemel();
  const semel = behind(fake, {
    1: () => {
      passes(25_000);
      lost();
    },
  });
  await semel.run(OPERATION, async (lease) => {
    expect(lease?.remaining).toBeLessThan(10_000);
    await vi.waitFor(() => expect(lease?.remaining).toBeGreaterThan(20_000));
  });
});

test("the fake's lease that is claimed again with its token lapses when it would have", async () => {
  const fake = new FakeSemel();
  const { api } = fake.semel();
  const request = { ...OPERATION, token: "0".repeat(32) };
  await api.claim(request);
  fake.advance(20_000);
  const again = await api.claim(request);
  expect(again.lease).toMatchObject({ attempt: 1 });
  fake.advance(15_000);
  expect((await api.claim({ ...request, token: "1".repeat(32) })).lease).toMatchObject({ attempt: 2 });
});

test("what was done and can't be recorded is told as unrecorded, whether it is JSON or not", async () => {
  for (const value of ["json", 10n]) {
    const fake = new FakeSemel({ leaseMs: 300 });
    const fetch: Fetch = (url, init) => (url.endsWith("/settle") ? Promise.reject(new TypeError("away")) : fake.fetch(url, init));
    const error = await fake.semel({ fetch }).run<unknown>(OPERATION, () => value).catch((found: unknown) => found);
    expect(error).toBeInstanceOf(Unrecorded);
    expect((error as Unrecorded).value).toBe(value);
  }
});
