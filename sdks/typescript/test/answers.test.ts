/** What the client takes for an answer, and what it says where there is none. */
import { type RequestListener, createServer } from "node:http";
import { expect, test } from "vitest";
import { Client, GaveUp } from "../src/index.js";
import { judge } from "../src/retry.js";
import type { Fetch } from "../src/send.js";
import { freePort, listening } from "./support/servers.js";

const RETRY = { base: 1, cap: 1, maxAttempts: 3 };

/** A service that says the same whenever it is asked. */
function saying(status: number, members: object): { client: Client; asked: () => number } {
  let asked = 0;
  const fetch: Fetch = () => {
    asked += 1;
    const headers = { "Content-Type": "application/json" };
    return Promise.resolve(new Response(JSON.stringify(members), { status, headers }));
  };
  return { client: new Client({ baseUrl: "http://a.test", retry: RETRY, fetch }), asked: () => asked };
}

const ODD = [17, ["idempotency_conflict"], { of: "idempotency_conflict" }, null, true];

test.each(ODD.flatMap((code) => [[400, code] as const, [503, code] as const]))(
  "what the service says is an answer: %i with the code %j",
  async (status, code) => {
    const { client, asked } = saying(status, { code, retryable: false });
    const answer = await client.post("/charges");
    expect([answer.status, answer.attempts, asked()]).toEqual([status, 1, 1]);
    expect(answer.json()).toEqual({ code, retryable: false });
  },
);

test("members of another kind than a problem's are as if they weren't there", () => {
  const of = (status: number, members: string) =>
    judge({ status, headers: new Headers({ "Content-Type": "application/problem+json" }), body: new TextEncoder().encode(members) });
  expect(of(503, '{"retryable": "no"}').again).toBe(true);
  expect(of(400, '{"retryable": 1}').again).toBe(false);
  for (const after of ["1e999", "-1", '"5"', "[5]"]) expect(of(503, `{"retryAfterMs": ${after}}`).after).toBeUndefined();
  expect(of(503, '{"retryAfterMs": 5}').after).toBe(5);
});

test.each([
  ["idempotency_too_many_waiters", 429, true],
  ["idempotency_in_flight", 409, true],
  ["idempotency_store_unavailable", 503, false],
  ["idempotency_shut_down", 503, true],
] as const)("who gives up at %s may say that nothing was done only where nothing runs", async (code, status, unknown) => {
  const { client } = saying(status, { code, retryable: true, retryAfterMs: 100_000 });
  const error = await client.post("/charges").catch((found: unknown) => found);
  expect(error).toBeInstanceOf(GaveUp);
  expect(error).toMatchObject({ unknown, status });
});

async function serving<T>(listener: RequestListener, use: (url: string) => Promise<T>): Promise<T> {
  const server = createServer(listener);
  try {
    return await use(await listening(server));
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

test.each([301, 302, 303, 307, 308])("a redirect is an answer, and nobody else is asked: %i", async (status) => {
  const elsewhere: (string | undefined)[] = [];
  const other: RequestListener = (request, response) => {
    elsewhere.push(request.headersDistinct["idempotency-key"]?.join());
    response.writeHead(404).end();
  };
  await serving(other, async (second) => {
    for (const next of [`${second}/receipt`, `http://127.0.0.1:${await freePort()}/receipt`]) {
      const charge: RequestListener = (request, response) => {
        request.resume().on("end", () => response.writeHead(status, { Location: next }).end("charged"));
      };
      const answer = await serving(charge, (baseUrl) => new Client({ baseUrl, retry: RETRY }).post("/charges", { json: {} }));
      expect([answer.status, answer.headers.get("location"), answer.text()]).toEqual([status, next, "charged"]);
      expect(answer.attempts).toBe(1);
    }
  });
  expect(elsewhere).toEqual([]);
});
