/** The middlewares where handlers answer in odd ways: streams that break off, two answers, repeated headers. On the fake. */
import { type Server, createServer } from "node:http";
import { Readable } from "node:stream";
import { getRequestListener } from "@hono/node-server";
import express, { type ErrorRequestHandler } from "express";
import { fastify } from "fastify";
import { Hono } from "hono";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import * as forExpress from "../src/express.js";
import * as forFastify from "../src/fastify.js";
import * as forHono from "../src/hono.js";
import { type Semel, newKey } from "../src/index.js";
import { FakeSemel } from "../src/testing.js";
import { withIdempotency } from "../src/web.js";
import { listening, sleep } from "./support/servers.js";

const fake = new FakeSemel({ leaseMs: 600 });
const semel = fake.semel({ retry: { base: 5, cap: 20, totalTimeout: 300 } });
const LINKS = ["</a>; rel=first", "</b>; rel=last"];
const EVENTS = "text/event-stream";

/** One event, and then what the path says: a break, no end, or an end. */
async function* source(path: string): AsyncGenerator<Buffer> {
  yield Buffer.from("data: 1\n\n");
  await sleep(20);
  if (path.includes("broken")) throw new Error("broke off");
  while (path.includes("endless")) await sleep(20);
  yield Buffer.from("data: 2\n\n");
}
const typeOf = (path: string) => (path.includes("events") ? EVENTS : "text/plain");
const saidOf = (path: string) => ["unknown", "no-effect"].find((said) => path.includes(said));

const servers: Server[] = [];
afterAll(() => {
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
});

async function started(server: Server): Promise<string> {
  servers.push(server);
  return listening(server);
}

const post = (url: string, key: string, signal?: AbortSignal) =>
  fetch(url, { method: "POST", headers: { "Idempotency-Key": key, "Content-Type": "application/json" }, body: "{}", signal: signal ?? null });
const stateOf = (key: string) => fake.state("http", key);
const becomes = (key: string, state: string) => vi.waitFor(() => expect(stateOf(key)).toBe(state), 2000);

/** No longer renewed: it would be for as long as the process lives. */
async function staysQuiet(): Promise<void> {
  const before = fake.calls.length;
  await sleep(500);
  expect(fake.calls.length).toBe(before);
}

const APPS: Record<string, (given: Semel) => Promise<Server>> = {
  express: (given) => {
    const app = express();
    app.use(express.json(), forExpress.idempotency({ semel: given }));
    app.post("/links", (_, response) => {
      response.setHeader("Link", LINKS);
      response.status(201).json({});
    });
    app.post("/stream/:how", (request, response) => {
      response.type(typeOf(request.path)).set("Semel-Outcome", saidOf(request.path) ?? "");
      Readable.from(source(request.path)).pipe(response);
    });
    return Promise.resolve(createServer(app as Parameters<typeof createServer>[1]));
  },
  fastify: async (given) => {
    const app = fastify();
    await app.register(forFastify.idempotency, { semel: given });
    app.post("/links", (_, reply) => reply.code(201).header("Link", LINKS).send({}));
    app.post("/stream/:how", (request, reply) => {
      void reply.type(typeOf(request.url)).header("Semel-Outcome", saidOf(request.url) ?? "");
      return reply.send(Readable.from(source(request.url)));
    });
    await app.ready();
    return createServer((request, response) => app.routing(request, response));
  },
  hono: (given) => {
    const app = new Hono();
    app.use(forHono.idempotency({ semel: given }));
    app.post("/links", (c) => {
      for (const link of LINKS) c.header("Link", link, { append: true });
      return c.json({}, 201);
    });
    app.post("/stream/:how", (c) => {
      const headers = { "Content-Type": typeOf(c.req.path), "Semel-Outcome": saidOf(c.req.path) ?? "" };
      return c.body(Readable.toWeb(Readable.from(source(c.req.path))) as ReadableStream, 200, headers);
    });
    app.onError((_, c) => c.text("broke off", 500));
    return Promise.resolve(createServer(getRequestListener(app.fetch) as Parameters<typeof createServer>[1]));
  },
  web: (given) => {
    const answered = (request: Request): Response => {
      const { pathname } = new URL(request.url);
      if (pathname === "/links") return Response.json({}, { status: 201, headers: LINKS.map((link): [string, string] => ["Link", link]) });
      const headers = { "Content-Type": typeOf(pathname), "Semel-Outcome": saidOf(pathname) ?? "" };
      return new Response(Readable.toWeb(Readable.from(source(pathname))) as ReadableStream, { headers });
    };
    const listener = getRequestListener(withIdempotency(answered, { semel: given }), { errorHandler: () => new Response(null, { status: 500 }) });
    return Promise.resolve(createServer(listener as Parameters<typeof createServer>[1]));
  },
};

describe.each(Object.entries(APPS))("%s", (_, make) => {
  let url = "";
  beforeAll(async () => {
    url = await started(await make(semel));
  });

  test("a replay has every line of a header", async () => {
    const key = newKey();
    const answers = [await post(`${url}/links`, key), await post(`${url}/links`, key)];
    expect(answers.map((answer) => answer.headers.get("link"))).toEqual([LINKS.join(", "), LINKS.join(", ")]);
    expect(answers.map((answer) => answer.headers.get("idempotent-replayed"))).toEqual([null, "true"]);
  });

  test.each([
    ["events", "completed"],
    ["events-unknown", "in_doubt"],
    ["events-no-effect", "released"],
  ])("a stream's handler may say what became of it: %s", async (how, state) => {
    const key = newKey();
    const answer = await post(`${url}/stream/${how}`, key);
    expect([await answer.text(), answer.headers.has("semel-outcome")]).toEqual(["data: 1\n\ndata: 2\n\n", false]);
    await becomes(key, state);
  });
});

// A response of Express doesn't tell a handler that broke off from one that goes on without its client.
describe.each(["fastify", "hono", "web"])("%s", (name) => {
  let url = "";
  beforeAll(async () => {
    url = await started(await APPS[name]!(semel));
  });

  test.each(["plain-broken", "events-broken", "events-endless"])(
    "a stream that breaks off, or whose client leaves, frees the key: %s",
    async (how) => {
      const key = newKey();
      const leave = new AbortController();
      const reading = post(`${url}/stream/${how}`, key, leave.signal).then((answer) => {
        if (how.includes("endless")) setTimeout(() => leave.abort(), 100);
        return answer.text();
      });
      await reading.catch(() => undefined);
      await becomes(key, "released");
      await staysQuiet();
    },
  );
});

describe("express alone", () => {
  let url = "";
  let see: () => void;
  const seen = new Promise<void>((resolve) => (see = resolve));
  beforeAll(async () => {
    const app = express();
    app.use(express.json(), forExpress.idempotency({ semel }));
    app.post("/flushed/events", (_, response) => {
      response.type(EVENTS);
      response.flushHeaders();
      void seen.then(() => response.end("data: 1\n\n"));
    });
    app.post("/flushed/plain", (_, response) => {
      response.status(201).type("text/plain");
      response.flushHeaders();
      response.end("done");
    });
    app.post("/twice", async (_, response) => {
      response.status(201).set("X-First", "yes").json({ charge: "ch_1" });
      await Promise.resolve();
      throw new Error("after the answer");
    });
    const second: ErrorRequestHandler = (error, _request, response, next) => {
      if (response.headersSent) {
        next(error);
        return;
      }
      response.status(500).set("X-First", "no").set("X-Second", "yes");
      response.write("more");
      response.end("failed");
    };
    app.use(second);
    url = await started(createServer(app as Parameters<typeof createServer>[1]));
  });

  test("an event stream's head is there before its first event", { timeout: 10_000 }, async () => {
    const key = newKey();
    const answer = await post(`${url}/flushed/events`, key);
    see();
    expect([answer.headers.get("content-type"), await answer.text()]).toEqual([`${EVENTS}; charset=utf-8`, "data: 1\n\n"]);
    await becomes(key, "completed");
  });

  test("a head that is asked for early is held back like its answer", async () => {
    const key = newKey();
    for (const replayed of [null, "true"]) {
      const answer = await post(`${url}/flushed/plain`, key);
      expect([answer.status, await answer.text()]).toEqual([201, "done"]);
      expect(answer.headers.get("idempotent-replayed")).toBe(replayed);
    }
  });

  test("a handler that answers and then fails has answered", async () => {
    const key = newKey();
    for (const replayed of [null, "true"]) {
      const answer = await post(`${url}/twice`, key);
      expect([answer.status, await answer.json()]).toEqual([201, { charge: "ch_1" }]);
      expect(answer.headers.get("idempotent-replayed")).toBe(replayed);
      expect(answer.headers.has("x-second")).toBe(false);
      if (replayed === null) expect(answer.headers.get("x-first")).toBe("yes");
    }
    expect(stateOf(key)).toBe("completed");
  });
});
