/** What other people's APIs say in words of their own: whether to retry, when, and that a key was used for another request. */
import { expect, test } from "vitest";
import { Client, Conflict, GaveUp, type RetryEvent } from "../src/index.js";
import { retryAfter } from "../src/retry.js";

function scripted(said: (attempt: number) => Response, retry: object = {}) {
  let asked = 0;
  const fetch = () => Promise.resolve(said(++asked));
  const client = new Client({ baseUrl: "http://a", fetch, retry: { base: 1, cap: 2, ...retry } });
  return { client, asked: () => asked };
}

test.each(["x-should-retry", "stripe-should-retry"])("%s counts more than the status", async (name) => {
  const never = scripted(() => new Response(null, { status: 503, headers: { [name]: "false" } }));
  expect((await never.client.post("/")).status).toBe(503);
  expect(never.asked()).toBe(1);
  const again = scripted((attempt) => new Response(null, { status: attempt === 1 ? 409 : 201, headers: { [name]: "true" } }));
  expect((await again.client.post("/")).status).toBe(201);
  expect(again.asked()).toBe(2);
});

test("an answer that is good is never asked for again", async () => {
  const { client, asked } = scripted(() => new Response(null, { status: 201, headers: { "x-should-retry": "true" } }));
  expect((await client.post("/")).status).toBe(201);
  expect(asked()).toBe(1);
});

test("retry-after-ms is finer than Retry-After", () => {
  const after = (headers: Record<string, string>) => retryAfter(new Headers(headers), {});
  expect(after({ "retry-after-ms": "250", "retry-after": "1" })).toBe(250);
  expect(after({ "retry-after-ms": "12.5" })).toBe(12.5);
  expect(after({ "retry-after-ms": "soon", "retry-after": "2" })).toBe(2000);
  expect(after({ "retry-after-ms": "-1" })).toBeUndefined();
});

const stripe = (status: number, error: object) => Response.json({ error }, { status });

test("Stripe's idempotency_error is a conflict", async () => {
  const { client, asked } = scripted(() =>
    stripe(400, { type: "idempotency_error", message: "Keys for idempotent requests can only be used with the same parameters" }),
  );
  const error = await client.post("/").catch((found: unknown) => found);
  expect(error).toBeInstanceOf(Conflict);
  expect(error).toMatchObject({ status: 400, code: "idempotency_conflict" });
  expect(asked()).toBe(1);
});

test("a key that is in use at Stripe is asked for again", async () => {
  const inUse = { type: "idempotency_error", code: "idempotency_key_in_use" };
  const { client } = scripted((attempt) => (attempt < 9 ? stripe(409, inUse) : Response.json({}, { status: 200 })));
  expect((await client.post("/")).attempts).toBe(9);
});

test("a retry and a giving up have hooks of their own", async () => {
  const [retries, ends]: RetryEvent[][] = [[], []];
  const hooks = { maxAttempts: 3, onRetry: (event: RetryEvent) => retries!.push(event), onGiveUp: (event: RetryEvent) => ends!.push(event) };
  const { client } = scripted(() => new Response(null, { status: 502 }), hooks);
  const error = await client.post("/").catch((found: unknown) => found);
  expect(error).toBeInstanceOf(GaveUp);
  expect((error as GaveUp).key).toMatch(/^idem_/);
  expect(retries!.map((event) => [event.kind, event.attempt])).toEqual([["retry", 1], ["retry", 2]]);
  expect(ends!.map((event) => [event.kind, event.attempt, event.reason])).toEqual([["gave_up", 3, "the last answer was 502"]]);
});
