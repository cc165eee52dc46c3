/** Services whose API can't be used, callers that leave, handlers that write more than anybody reads: on the fake. */
import { type Server, createServer } from "node:http";
import { getRequestListener } from "@hono/node-server";
import express from "express";
import { fastify } from "fastify";
import { Hono } from "hono";
import { afterAll, describe, expect, test, vi } from "vitest";
import * as forExpress from "../src/express.js";
import * as forFastify from "../src/fastify.js";
import * as forHono from "../src/hono.js";
import { type MiddlewareOptions, replayed } from "../src/http.js";
import { Semel, currentLease, newKey } from "../src/index.js";
import type { Fetch } from "../src/send.js";
import { FakeSemel } from "../src/testing.js";
import { withIdempotency } from "../src/web.js";
import { freePort, listening, sleep } from "./support/servers.js";

const RETRY = { base: 1, cap: 2, maxAttempts: 2, totalTimeout: 2000 };
const servers: Server[] = [];
afterAll(() => servers.forEach((server) => server.close()));

type Options = MiddlewareOptions<never>;
const APPS: Record<string, (options: Options, ran: () => void) => Promise<Server>> = {
  express: (options, ran) => {
    const app = express();
    app.use(express.json(), forExpress.idempotency(options as never));
    app.post("/", (_, response) => {
      ran();
      response.json({});
    });
    return Promise.resolve(createServer(app as Parameters<typeof createServer>[1]));
  },
  fastify: async (options, ran) => {
    const app = fastify();
    await app.register(forFastify.idempotency, options as never);
    app.post("/", () => {
      ran();
      return {};
    });
    await app.ready();
    return createServer((request, response) => app.routing(request, response));
  },
  hono: (options, ran) => {
    const app = new Hono();
    app.use(forHono.idempotency(options as never));
    app.post("/", (c) => {
      ran();
      return c.json({});
    });
    return Promise.resolve(createServer(getRequestListener(app.fetch) as Parameters<typeof createServer>[1]));
  },
  web: (options, ran) => {
    const handler = () => {
      ran();
      return Response.json({});
    };
    return Promise.resolve(createServer(getRequestListener(withIdempotency(handler, options as never)) as Parameters<typeof createServer>[1]));
  },
};

const post = (url: string, key: string) =>
  fetch(url, { method: "POST", headers: { "Idempotency-Key": key, "Content-Type": "application/json" }, body: "{}" });

describe.each(Object.entries(APPS))("%s", (_, make) => {
  async function answered(fetch: Fetch | undefined, url = "http://semel.test/_semel") {
    const lines: string[] = [];
    let runs = 0;
    const semel = new Semel({ url, retry: RETRY, token: "secret-token", ...(fetch ? { fetch } : {}) });
    const server = await make({ semel, log: (line) => lines.push(line) }, () => runs++);
    servers.push(server);
    const at = await listening(server);
    const key = newKey();
    const answers = [await post(at, key), await post(at, key)];
    return { lines, runs, key, status: answers[0]!.status, problem: (await answers[0]!.json()) as { code: string; retryable: boolean } };
  }
  const refusing = (status: number, body: string, type: string) => () =>
    Promise.resolve(new Response(body, { status, headers: { "Content-Type": type } }));

  test.each([
    [401, JSON.stringify({ code: "unauthorized" }), "application/problem+json"],
    [403, JSON.stringify({ code: "forbidden" }), "application/problem+json"],
    [404, "<h1>Not found</h1>", "text/html"],
    [200, "<h1>Welcome</h1>", "text/html"],
  ])("an API that answers %i is a mistake of the service, told as that and logged once", async (status, body, type) => {
    const found = await answered(refusing(status, body, type));
    expect([found.status, found.problem.code, found.problem.retryable, found.runs]).toEqual([500, "idempotency_policy", false, 0]);
    expect(found.lines.length).toBe(1);
    expect(found.lines[0]).toContain(`status ${status}`);
    expect(found.lines[0]).toContain("api.access");
    expect(found.lines.join()).not.toMatch(new RegExp(`secret-token|${found.key}`));
  });

  test("an API that isn't there is logged, and may be asked again", async () => {
    const found = await answered(undefined, `http://127.0.0.1:${await freePort()}/_semel`);
    expect([found.status, found.problem.code, found.problem.retryable, found.runs]).toEqual([503, "idempotency_store_unavailable", true, 0]);
    expect(found.lines.length).toBe(1);
    expect(found.lines[0]).toContain("can't be reached");
  });
});

test("an answer that is none of HTTP is an error of the server", () => {
  const plain = replayed({ id: "1", status: "completed", replayed: true, took_ms: 0, answer: { body: 1 } });
  expect(plain.status).toBe(500);
  expect(JSON.parse(new TextDecoder().decode(plain.body))).toMatchObject({ code: "idempotency_answer_unreadable", status: 500 });
});

describe("a caller that leaves while the claim is asked for", () => {
  const OPERATION = { scope: "charge", key: "k", crash: "hold" as const };

  test.each(["reply is lost", "reply comes"])("frees the key where the %s", async (how) => {
    const fake = new FakeSemel();
    const leave = new AbortController();
    let sent = 0;
    const fetch: Fetch = async (url, init) => {
      const reply = await fake.fetch(url, init);
      if (++sent > 1) return reply;
      leave.abort();
      if (how === "reply is lost") init.signal?.throwIfAborted();
      return reply;
    };
    let runs = 0;
    const run = fake.semel({ fetch }).run({ ...OPERATION, signal: leave.signal }, () => runs++);
    await expect(run).rejects.toThrow(/abort/i);
    await vi.waitFor(() => expect(fake.state("charge", "k")).toBe("released"));
    expect(runs).toBe(0);
  });

  test("and nothing is asked for where it had left before", async () => {
    const fake = new FakeSemel();
    await expect(fake.semel().run({ ...OPERATION, signal: AbortSignal.abort() }, () => 1)).rejects.toThrow(/abort/i);
    expect(fake.calls).toEqual([]);
  });

  test("but an effect that has begun goes on", async () => {
    const fake = new FakeSemel();
    const leave = new AbortController();
    const run = fake.semel().run({ ...OPERATION, signal: leave.signal }, async () => {
      leave.abort();
      await sleep(5);
      return "done";
    });
    expect((await run).value).toBe("done");
  });
});

describe("the lease of what is running", () => {
  test("is found by an existing function, however deep", async () => {
    const semel = new FakeSemel().semel();
    const deep = async (): Promise<string | undefined> => {
      await sleep(1);
      return currentLease()?.deriveKey("bank");
    };
    async function charge(order: string, cents: number): Promise<{ order: string; cents: number; key: string | undefined }> {
      return { order, cents, key: await deep() };
    }
    const once = semel.idempotent({ scope: "charge", key: (order) => order }, charge);
    const [one, two] = await Promise.all([once("a", 1), once("b", 2)]);
    expect([one.order, one.cents, two.order]).toEqual(["a", 1, "b"]);
    expect(one.key).toMatch(/^semel-/);
    expect(two.key).not.toBe(one.key);
    expect(currentLease()).toBeUndefined();
  });

  test("is nothing where the server doesn't enforce the scope", async () => {
    const view = { id: "1", status: "unprotected", replayed: false, took_ms: 0 };
    const semel = new Semel({ url: "http://semel.test", fetch: () => Promise.resolve(Response.json(view)) });
    const outer = new FakeSemel().semel();
    const { value } = await outer.run<string>({ scope: "outer", key: "k" }, async () => {
      const inner = await semel.run<string>({ scope: "inner", key: "k" }, () => typeof currentLease());
      return inner.value;
    });
    expect(value).toBe("undefined");
  });
});

describe("express", () => {
  async function started(handler: express.RequestHandler): Promise<{ url: string; fake: FakeSemel }> {
    const fake = new FakeSemel();
    const app = express();
    app.use(express.json(), forExpress.idempotency({ semel: fake.semel() }));
    app.post("/", handler);
    const server = createServer(app as Parameters<typeof createServer>[1]);
    servers.push(server);
    return { url: await listening(server), fake };
  }

  test("a handler that writes more than is read is told to wait, and its callbacks are called", async () => {
    const [chunk, written] = [Buffer.alloc(256 * 1024), { calls: 0, waits: 0 }];
    const { url, fake } = await started((_, response) => {
      const next = (left: number): void => {
        if (left === 0) {
          response.end(() => written.calls++);
          return;
        }
        if (response.write(chunk, () => written.calls++)) setImmediate(next, left - 1);
        else {
          written.waits++;
          response.once("drain", () => next(left - 1));
        }
      };
      next(200);
    });
    const key = newKey();
    const answer = await post(url, key);
    await sleep(200);
    expect(written.waits).toBeGreaterThan(0);
    expect(written.calls).toBeLessThan(100);
    expect((await answer.arrayBuffer()).byteLength).toBe(200 * chunk.length);
    await vi.waitFor(() => expect(written.calls).toBe(201));
    expect(fake.state("http", key)).toBe("completed");
  });

  test("the lease is found from inside a handler", async () => {
    const { url } = await started((_, response) => {
      response.json({ fence: currentLease()?.fence });
    });
    expect(await (await post(url, newKey())).json()).toEqual({ fence: 1 });
  });
});
