/** The events of a call's attempts, by which a program counts them. */
import { expect, test } from "vitest";
import { Client, Conflict, GaveUp, InDoubt, type RetryEvent } from "../src/index.js";

type Said = Response | Error;

const problem = (status: number, code: string): Response =>
  new Response(JSON.stringify({ code, retryable: false }), {
    status,
    headers: { "Content-Type": "application/problem+json" },
  });

/** A client of a server that says these things, one after the other, and the events that it told. */
function observed(said: Said[], onEvent?: (event: RetryEvent) => void, maxAttempts = 6) {
  const seen: RetryEvent[] = [];
  const client = new Client({
    baseUrl: "http://a",
    retry: { base: 1, cap: 2, maxAttempts, onEvent: onEvent ?? ((event) => seen.push(event)) },
    fetch: () => {
      const next = said.shift();
      return next instanceof Response ? Promise.resolve(next) : Promise.reject(next ?? new Error("asked too often"));
    },
  });
  return { client, seen };
}

test("attempts, retries and a replay are told in order", async () => {
  const replay = new Response("{}", { status: 201, headers: { "Idempotent-Replayed": "true" } });
  const { client, seen } = observed([new Response(null, { status: 503 }), new TypeError("cut"), replay]);
  const answer = await client.post("/charges", { json: {}, key: "key-that-no-event-has" });
  expect(answer.status).toBe(201);
  expect(seen.map((event) => [event.kind, event.attempt])).toEqual([
    ["attempt", 1],
    ["retry", 1],
    ["attempt", 2],
    ["retry", 2],
    ["attempt", 3],
    ["replay", 3],
  ]);
  expect([seen[1]?.reason, seen[3]?.reason]).toEqual(["the last answer was 503", "no answer (TypeError)"]);
  expect(seen.every((event) => event.pause >= 0 && event.pause <= 2)).toBe(true);
  expect(JSON.stringify(seen)).not.toContain("key-that-no-event-has");
});

test.each([
  [422, "idempotency_conflict", "conflict", Conflict],
  [409, "idempotency_in_doubt", "in_doubt", InDoubt],
  [500, "idempotency_record_unreadable", "in_doubt", InDoubt],
])("conflicts and doubts are told: %i %s", async (status, code, kind, error) => {
  const { client, seen } = observed([problem(status, code)]);
  await expect(client.post("/")).rejects.toBeInstanceOf(error);
  expect(seen.map((event) => event.kind)).toEqual(["attempt", kind]);
});

test("the end of all tries is told with its reason", async () => {
  const said = [503, 502].map((status) => new Response(null, { status }));
  const { client, seen } = observed(said, undefined, 2);
  await expect(client.post("/")).rejects.toBeInstanceOf(GaveUp);
  expect(seen.map((event) => event.kind)).toEqual(["attempt", "retry", "attempt", "gave_up"]);
  expect(seen[3]?.reason).toBe("the last answer was 502");
});

test("an observer that fails changes nothing", async () => {
  const fails = () => {
    throw new Error("no counters today");
  };
  const { client } = observed([new Response(null, { status: 503 }), new Response("{}", { status: 201 })], fails);
  expect((await client.post("/")).status).toBe(201);
});
