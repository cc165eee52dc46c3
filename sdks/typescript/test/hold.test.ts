/** How long an answer is held back: to its end, 5 seconds or 1 MiB, whichever comes first. On the fake. */
import { type Server, createServer } from "node:http";
import { getRequestListener } from "@hono/node-server";
import express from "express";
import { Hono } from "hono";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import * as forExpress from "../src/express.js";
import * as forHono from "../src/hono.js";
import { newKey } from "../src/index.js";
import { FakeSemel } from "../src/testing.js";
import { withIdempotency } from "../src/web.js";
import { listening } from "./support/servers.js";

const MIB = 1024 * 1024;
const fake = new FakeSemel();
const semel = fake.semel();
const servers: Server[] = [];
afterAll(() => {
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
});

/** What lets the source end: until then it has sent one chunk. */
let proceed: () => void;
let pulled = 0;

function lines(first: string | Uint8Array): ReadableStream<Uint8Array> {
  const go = new Promise<void>((resolve) => (proceed = resolve));
  const encode = (text: string | Uint8Array) => (typeof text === "string" ? new TextEncoder().encode(text) : text);
  return new ReadableStream({
    start: (controller) => controller.enqueue(encode(first)),
    pull: async (controller) => {
      await go;
      controller.enqueue(encode("last\n"));
      controller.close();
    },
  });
}

/** A gigabyte, as far as it is read. */
const huge = () =>
  new ReadableStream<Uint8Array>({
    pull: (controller) => {
      if (++pulled > 1024) controller.close();
      else controller.enqueue(new Uint8Array(MIB));
    },
  });

const answerOf = (path: string): Response => {
  const headers = { "Content-Type": "application/x-ndjson" };
  if (path.endsWith("huge")) return new Response(huge(), { headers });
  return new Response(lines(path.endsWith("large") ? new Uint8Array(2 * MIB) : "first\n"), { status: 201, headers });
};

const APPS: Record<string, () => Server> = {
  express: () => {
    const app = express();
    app.use(express.json(), forExpress.idempotency({ semel }));
    app.post("/:how", async (request, response) => {
      const answer = answerOf(request.path);
      response.status(answer.status).type("application/x-ndjson");
      for await (const chunk of answer.body as unknown as AsyncIterable<Uint8Array>) response.write(chunk);
      response.end();
    });
    return createServer(app as Parameters<typeof createServer>[1]);
  },
  hono: () => {
    const app = new Hono();
    app.use(forHono.idempotency({ semel }));
    app.post("/:how", (c) => answerOf(c.req.path));
    return createServer(getRequestListener(app.fetch) as Parameters<typeof createServer>[1]);
  },
  web: () => {
    const handler = withIdempotency((request) => answerOf(new URL(request.url).pathname), { semel });
    return createServer(getRequestListener(handler) as Parameters<typeof createServer>[1]);
  },
};

describe.each(Object.entries(APPS))("%s", (name, make) => {
  let url = "";
  beforeAll(async () => {
    const server = make();
    servers.push(server);
    url = await listening(server);
  });
  const post = (path: string, key: string, signal?: AbortSignal) =>
    fetch(url + path, { method: "POST", headers: { "Idempotency-Key": key }, signal: signal ?? null });

  test.each(["slow", "large"])("an answer that is %s goes on before its end, and isn't kept", { timeout: 15_000 }, async (how) => {
    const key = newKey();
    const answer = await post(`/${how}`, key);
    const reader = answer.body!.getReader();
    const first = await reader.read();
    expect(first.value?.length).toBeGreaterThan(0);
    expect(fake.state("http", key)).toBe("running");
    proceed();
    let size = first.value?.length ?? 0;
    let last = first.value;
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      size += next.value.length;
      last = next.value;
    }
    expect(size).toBe(how === "large" ? 2 * MIB + 5 : 11);
    expect(new TextDecoder().decode(last)).toMatch(/last\n$/);
    await vi.waitFor(() => expect(fake.state("http", key)).toBe("completed"));
    const again = await post(`/${how}`, key);
    expect([again.status, again.headers.get("idempotent-not-kept")]).toEqual([201, "body"]);
    expect(await again.json()).toMatchObject({ code: "idempotency_body_not_kept" });
  });

  // A handler of Express is told to wait, which is another test.
  if (name === "express") return;
  test("an answer of a gigabyte isn't gathered in memory", async () => {
    pulled = 0;
    const leave = new AbortController();
    const answer = await post("/huge", newKey(), leave.signal);
    const reader = answer.body!.getReader();
    await reader.read();
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(pulled).toBeLessThan(200);
    leave.abort();
    await reader.cancel().catch(() => undefined);
  });
});

describe("a handler of the web's own requests", () => {
  const post = (key: string, body = "{}", headers = {}) =>
    new Request("http://shop.test/charges?now=1", { method: "POST", body, headers: { "Idempotency-Key": key, "Content-Type": "application/json", ...headers } });

  test("reads its body, has its lease, and runs once", async () => {
    let runs = 0;
    const handler = withIdempotency(
      async (request: Request, context: { params: { id: string } }) => {
        const { cents } = (await request.json()) as { cents: number };
        return Response.json({ cents, id: context.params.id, run: ++runs }, { status: 201, headers: { Location: "/c/1" } });
      },
      { semel, scope: "charges" },
    );
    const key = newKey();
    const context = { params: { id: "7" } };
    const [first, again] = [await handler(post(key, '{"cents":5}'), context), await handler(post(key, '{ "cents": 5 }'), context)];
    expect([first.status, await first.json()]).toEqual([201, { cents: 5, id: "7", run: 1 }]);
    expect([again.status, await again.json(), again.headers.get("location")]).toEqual([201, { cents: 5, id: "7", run: 1 }, "/c/1"]);
    expect([first, again].map((answer) => answer.headers.get("idempotent-replayed"))).toEqual([null, "true"]);
    expect((await handler(post(key, '{"cents":6}'), context)).status).toBe(422);
    expect((await handler(new Request("http://shop.test/charges?now=1", { method: "POST", body: '{"cents":5}' }), context)).status).toBe(201);
    expect(runs).toBe(2);
  });

  test("an error of the handler is thrown, and frees the key", async () => {
    const key = newKey();
    const handler = withIdempotency(() => Promise.reject(new Error("broke")), { semel });
    await expect(handler(post(key))).rejects.toThrow("broke");
    expect(fake.state("http", key)).toBe("released");
  });

  test("a body past the bound is refused, whether its length is told or not", async () => {
    const handler = withIdempotency(() => Response.json({}), { semel });
    const large = new Request("http://shop.test/", {
      method: "POST",
      headers: { "Idempotency-Key": newKey() },
      body: new Blob([new Uint8Array(2 * MIB + 1)]).stream(),
      duplex: "half",
    } as RequestInit);
    expect((await handler(large)).status).toBe(413);
    expect((await handler(post(newKey(), "{}", { "Content-Length": String(2 * MIB + 1) }))).status).toBe(413);
  });

  test("Workers are told to wait until the outcome is recorded", async () => {
    const waited: Promise<unknown>[] = [];
    const key = newKey();
    const own = (request: Request, env: object, context: object) => Response.json([request.url, env, typeof context]);
    await withIdempotency(own, { semel })(post(key), {}, { waitUntil: (work: Promise<unknown>) => waited.push(work) });
    expect(waited.length).toBe(1);
    const app = new Hono();
    app.use(forHono.idempotency({ semel }));
    app.post("/charges", (c) => c.json({}));
    const context = { waitUntil: (work: Promise<unknown>) => void waited.push(work), passThroughOnException: () => undefined, props: {} };
    expect((await app.fetch(post(newKey()), {}, context)).status).toBe(200);
    expect(waited.length).toBe(2);
    await Promise.all(waited);
    expect(fake.state("http", key)).toBe("completed");
  });
});
