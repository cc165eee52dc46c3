/** The middlewares where answers are large, streams, doubtful, or the sidecar isn't there. */
import { type Server, createServer } from "node:http";
import { Readable } from "node:stream";
import { getRequestListener } from "@hono/node-server";
import express from "express";
import { fastify } from "fastify";
import { Hono } from "hono";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as forExpress from "../src/express.js";
import * as forFastify from "../src/fastify.js";
import * as forHono from "../src/hono.js";
import { Semel, newKey } from "../src/index.js";
import { withIdempotency } from "../src/web.js";
import { freePort, listening } from "./support/servers.js";
import { SIDECAR, WAYS, type Way, wayOf } from "./support/ways.js";

const LARGE = 1024 * 1024 + 1;
const EVENTS = "data: 1\n\ndata: 2\n\n";
const RETRY = { maxAttempts: 2, base: 10, cap: 100, totalTimeout: 30_000 };
type Run = (path: string) => void;

const APPS: Record<string, (semel: Semel, ran: Run) => Promise<Server>> = {
  express: async (semel, ran) => {
    const app = express();
    app.use(express.json(), forExpress.idempotency({ semel }));
    app.post("/large", (_, response) => {
      ran("/large");
      response.type("text/plain").status(201).send("x".repeat(LARGE));
    });
    app.post("/events", (_, response) => {
      ran("/events");
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.write(EVENTS.slice(0, 9));
      setTimeout(() => response.end(EVENTS.slice(9)), 50);
    });
    app.post("/said/:outcome", (request, response) => {
      ran(request.path);
      response.set("Semel-Outcome", request.params.outcome).json({ ok: true });
    });
    return Promise.resolve(createServer(app as Parameters<typeof createServer>[1]));
  },
  fastify: async (semel, ran) => {
    const app = fastify();
    await app.register(forFastify.idempotency, { semel });
    app.post("/large", (_, reply) => {
      ran("/large");
      return reply.code(201).type("text/plain").send("x".repeat(LARGE));
    });
    app.post("/events", (_, reply) => {
      ran("/events");
      return reply.type("text/event-stream").send(Readable.from([EVENTS.slice(0, 9), EVENTS.slice(9)]));
    });
    app.post("/said/:outcome", (request, reply) => {
      ran(request.url);
      return reply.header("Semel-Outcome", (request.params as { outcome: string }).outcome).send({ ok: true });
    });
    await app.ready();
    return createServer((request, response) => app.routing(request, response));
  },
  hono: (semel, ran) => {
    const app = new Hono();
    app.use(forHono.idempotency({ semel }));
    app.post("/large", (c) => {
      ran("/large");
      return c.text("x".repeat(LARGE), 201);
    });
    app.post("/events", (c) => {
      ran("/events");
      return c.body(Readable.toWeb(Readable.from([Buffer.from(EVENTS)])) as ReadableStream, 200, {
        "Content-Type": "text/event-stream",
      });
    });
    app.post("/said/:outcome", (c) => {
      ran(c.req.path);
      return c.json({ ok: true }, 200, { "Semel-Outcome": c.req.param("outcome") });
    });
    return Promise.resolve(createServer(getRequestListener(app.fetch) as Parameters<typeof createServer>[1]));
  },
  web: (semel, ran) => {
    const answer = (path: string): Response => {
      ran(path);
      if (path === "/large") return new Response("x".repeat(LARGE), { status: 201, headers: { "Content-Type": "text/plain" } });
      if (path !== "/events") return Response.json({ ok: true }, { headers: { "Semel-Outcome": path.split("/").at(-1) ?? "" } });
      const events = Readable.toWeb(Readable.from([Buffer.from(EVENTS)])) as ReadableStream;
      return new Response(events, { headers: { "Content-Type": "text/event-stream" } });
    };
    const handler = withIdempotency((request: Request) => answer(new URL(request.url).pathname), { semel });
    return Promise.resolve(createServer(getRequestListener(handler) as Parameters<typeof createServer>[1]));
  },
};

const CASES = WAYS.flatMap((name) => Object.keys(APPS).map((app) => ({ name, app })));

describe.each(CASES)("$app with $name", ({ name, app }) => {
  const runs: string[] = [];
  const servers: Server[] = [];
  let url = "";
  let way: Way;
  const start = async (semel: Semel) => {
    const server = await APPS[app]!(semel, (path) => runs.push(path));
    servers.push(server);
    return listening(server);
  };
  beforeAll(async () => {
    way = await wayOf(name);
    url = await start(way.semel({ retry: RETRY }));
  });
  afterAll(async () => {
    for (const server of servers) server.close();
    await way.stop();
  });

  const post = (path: string, key: string, base = url) =>
    fetch(base + path, {
      method: "POST",
      headers: { "Idempotency-Key": key, "Content-Type": "application/json" },
      body: "{}",
    });
  const ran = (path: string) => runs.filter((found) => found === path).length;

  test("a large answer reaches its caller and isn't kept", async () => {
    const key = newKey();
    const first = await post("/large", key);
    expect([first.status, (await first.text()).length]).toEqual([201, LARGE]);
    const again = await post("/large", key);
    expect([again.status, again.headers.get("idempotent-not-kept")]).toEqual([201, "body"]);
    expect(await again.json()).toMatchObject({ code: "idempotency_body_not_kept" });
    expect(ran("/large")).toBe(1);
  });

  test("a stream goes on as it comes, and isn't kept", async () => {
    const key = newKey();
    expect(await (await post("/events", key)).text()).toBe(EVENTS);
    const again = await post("/events", key);
    expect([again.status, again.headers.get("idempotent-not-kept")]).toEqual([200, "body"]);
    expect(ran("/events")).toBe(1);
  });

  test("a handler may say what became of it", async () => {
    for (const [said, times] of [
      ["no-effect", 2],
      ["unknown", 1],
    ] as const) {
      const key = newKey();
      const first = await post(`/said/${said}`, key);
      expect([first.status, first.headers.has("semel-outcome")]).toEqual([200, false]);
      expect((await post(`/said/${said}`, key)).status).toBe(times === 2 ? 200 : 409);
      expect(ran(`/said/${said}`)).toBe(times);
    }
  });

  /** A client whose way to an engine is gone. */
  const gone = async (): Promise<Semel> => {
    if (name === SIDECAR) return new Semel({ url: `http://127.0.0.1:${await freePort()}`, retry: RETRY });
    const closed = await wayOf(name);
    await closed.stop();
    return closed.semel({ retry: RETRY });
  };

  test("without an engine nothing is started", async () => {
    const lonely = await start(await gone());
    const before = runs.length;
    const answer = await post("/large", newKey(), lonely);
    expect([answer.status, answer.headers.get("retry-after")]).toEqual([503, "1"]);
    expect(await answer.json()).toMatchObject({ code: "idempotency_store_unavailable", retryable: true });
    expect(runs.length).toBe(before);
  });
});
