/**
 * Express, Fastify, Hono, Nest and a route of Next.js as they are, with the real sidecar on the real Redis, and with stores in
 * this process. The applications are the examples.
 */
import { type Server, createServer } from "node:http";
import { getRequestListener } from "@hono/node-server";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { Client, type Semel, type SemelOptions, newKey } from "../src/index.js";
import { listening } from "./support/servers.js";
import { WAYS, type Way, wayOf } from "./support/ways.js";

let way: Way;
const servers: Server[] = [];
const urls: Record<string, string> = {};

/** In the examples, `new Semel(…)` is a client of the way that is being tested. */
vi.mock("@semel/client", async (original) => {
  const given = vi.fn(function (options: SemelOptions): object {
    const clients = new Map<Way, Semel>();
    const client = (): Semel => {
      const found = clients.get(way) ?? way.semel(options);
      clients.set(way, found);
      return found;
    };
    return new Proxy({}, { get: (_, name) => memberOf(client(), name) });
  });
  return { ...(await original<object>()), Semel: given };
});

function memberOf(client: Semel, name: string | symbol): unknown {
  const member: unknown = Reflect.get(client, name);
  return typeof member === "function" ? (member.bind(client) as unknown) : member;
}

beforeAll(async () => {
  const { app: express } = await import("../examples/express-app.js");
  const { app: fastify } = await import("../examples/fastify-app.js");
  const { app: hono } = await import("../examples/hono-app.js");
  const { app: nest } = await import("../examples/nest-app.js");
  const route = await import("../examples/next-route.js");
  await fastify.ready();
  await nest.init();
  const made = {
    express: createServer(express as Parameters<typeof createServer>[1]),
    fastify: createServer((request, response) => fastify.routing(request, response)),
    hono: createServer(getRequestListener(hono.fetch) as Parameters<typeof createServer>[1]),
    nest: createServer(nest.getHttpAdapter().getInstance() as Parameters<typeof createServer>[1]),
    next: createServer(
      getRequestListener((request) => (request.method === "POST" ? route.POST(request) : route.GET()), {
        errorHandler: () => new Response(null, { status: 500 }),
      }) as Parameters<typeof createServer>[1],
    ),
  };
  for (const [name, server] of Object.entries(made)) {
    servers.push(server);
    urls[name] = `${await listening(server)}/charges`;
  }
});
afterAll(() => servers.forEach((server) => server.close()));

interface Charge {
  order: string;
  key?: string;
}

const CASES = WAYS.flatMap((kind) => ["express", "fastify", "hono", "nest", "next"].map((name) => ({ kind, name })));

describe.each(CASES)("$name with $kind", ({ kind, name }) => {
  beforeAll(async () => {
    way = await wayOf(kind);
  });
  afterAll(() => way.stop());

  const url = () => urls[name] ?? "";
  const post = (body: object, key?: string, more: Record<string, string> = {}) =>
    fetch(url(), {
      method: "POST",
      headers: { "Content-Type": "application/json", ...(key === undefined ? {} : { "Idempotency-Key": key }), ...more },
      body: JSON.stringify(body),
    });
  const charged = async (order: string) => {
    const all = (await (await fetch(url())).json()) as Charge[];
    return all.filter((charge) => charge.order === order);
  };

  test("a request sent many times acts once", async () => {
    const key = newKey();
    const order = { order: key, cents: 500 };
    const answers = await Promise.all([post(order, key), post(order, key), post(order, key), post(order, `"${key}"`)]);
    answers.push(await post(order, key));
    const texts = await Promise.all(answers.map((answer) => answer.text()));
    expect(new Set(texts).size).toBe(1);
    expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([201]));
    expect(new Set(answers.map((answer) => answer.headers.get("content-type"))).size).toBe(1);
    expect(answers.filter((answer) => answer.headers.get("idempotent-replayed") === "true").length).toBe(4);
    expect((await charged(key)).length).toBe(1);
  });

  test("another payload is refused, another order of members is not", async () => {
    const key = newKey();
    expect((await post({ order: key, cents: 1 }, key)).status).toBe(201);
    const refused = await post({ order: key, cents: 2 }, key);
    expect([refused.status, refused.headers.get("content-type")]).toEqual([422, "application/problem+json"]);
    expect(await refused.json()).toMatchObject({ code: "idempotency_conflict", retryable: false });
    expect((await post({ cents: 1, order: key }, key)).headers.get("idempotent-replayed")).toBe("true");
  });

  test("keys of two users never meet, and other credentials are another payload", async () => {
    const key = newKey();
    const replayed: (string | null)[] = [];
    for (const user of ["ada", "bob", "ada"]) {
      const answer = await post({ order: key, cents: 1 }, key, { "X-User": user });
      replayed.push(answer.headers.get("idempotent-replayed"));
    }
    expect(replayed).toEqual([null, null, "true"]);
    const keys = (await charged(key)).map((charge) => charge.key);
    expect([keys.length, new Set(keys).size]).toEqual([2, 2]);
    const other = newKey();
    const first = await post({ order: other, cents: 1 }, other, { Authorization: "Bearer one" });
    const second = await post({ order: other, cents: 1 }, other, { Authorization: "Bearer two" });
    expect([first.status, second.status]).toEqual([201, 422]);
  });

  test("a final refusal is replayed, and an error of the service frees the key", async () => {
    const key = newKey();
    const answers = [await post({ order: key, cents: -1 }, key), await post({ order: key, cents: -1 }, key)];
    expect(answers.map((answer) => answer.status)).toEqual([422, 422]);
    expect(answers[1]?.headers.get("idempotent-replayed")).toBe("true");
    const broken = newKey();
    for (let turn = 0; turn < 2; turn++) expect((await post({ order: broken, cents: 0 }, broken)).status).toBe(500);
    expect((await charged(broken)).length).toBe(2);
  });

  test("without a key it passes, with a bad one it is refused", async () => {
    const order = { order: newKey(), cents: 1 };
    expect((await post(order)).status).toBe(201);
    expect((await post(order)).status).toBe(201);
    const refused = await post(order, "no spaces");
    expect([refused.status, ((await refused.json()) as { code: string }).code]).toEqual([400, "idempotency_key_invalid"]);
  });

  test("a client that leaves cuts nothing", async () => {
    const key = newKey();
    const order = { order: key, cents: 7 };
    for (let turn = 0; turn < 20; turn++) {
      const signal = AbortSignal.timeout(3);
      await fetch(url(), {
        method: "POST",
        headers: { "Content-Type": "application/json", "Idempotency-Key": key },
        body: JSON.stringify(order),
        signal,
      }).catch(() => undefined);
    }
    const answer = await new Client().post(url(), { json: order, key });
    expect(answer.status).toBe(201);
    expect((await charged(key)).length).toBe(1);
  });
});
