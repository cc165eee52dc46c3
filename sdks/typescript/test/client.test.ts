/** The client against the real sidecar, and what it does with each kind of answer. */
import { createHash } from "node:crypto";
import { mkdtemp, readFile, readdir, stat, writeFile } from "node:fs/promises";
import { type ServerResponse, createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { memberText } from "../src/canonical.js";
import { CallChanged, Client, Conflict, GaveUp, InDoubt, OutboxDamaged, RetryBudget, newKey } from "../src/index.js";
import { Outbox } from "../src/outbox.js";
import { Course, DEFAULT_RETRY, judge, retryAfter } from "../src/retry.js";
import { Payments, type Running, body, freePort, listening, sidecar } from "./support/servers.js";

const QUICK = { base: 10, cap: 50, attemptTimeout: 5000, totalTimeout: 20_000 };
const payments = new Payments();
let service: Running, way: Running;

beforeAll(async () => {
  service = await payments.start();
  way = await sidecar(service.url);
});
afterAll(async () => {
  await way.stop();
  await service.stop();
});

const folder = () => mkdtemp(join(tmpdir(), "semel-outbox-"));

test("one key for all attempts, and a replay for the second call", async () => {
  const client = new Client({ baseUrl: way.url, retry: QUICK });
  const key = newKey();
  const answers = await Promise.all(Array.from({ length: 5 }, () => client.post("/charges", { json: { order: key }, key })));
  expect(new Set(answers.map((answer) => answer.text())).size).toBe(1);
  expect(answers.filter((answer) => answer.replayed).length).toBe(4);
  expect(answers.find((answer) => answer.replayed)?.originalTime).toBeDefined();
  expect(payments.effects.get(key)).toBe(1);
});

test("a conflict is told and not retried", async () => {
  const budget = new RetryBudget();
  const client = new Client({ baseUrl: way.url, retry: QUICK, budget });
  const key = newKey();
  await client.post("/charges", { json: { order: key }, key });
  const before = budget.left;
  const refused = await client.post("/charges", { json: { order: "another" }, key }).catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(Conflict);
  expect(refused).toMatchObject({ status: 422, code: "idempotency_conflict", name: "Conflict" });
  expect(budget.left).toBeGreaterThanOrEqual(before);
  expect(String(refused)).not.toContain(key);
});

test("the service's own refusal is an answer", async () => {
  const client = new Client({ baseUrl: way.url, retry: QUICK });
  const key = newKey();
  for (const replayed of [false, true]) {
    const answer = await client.post("/charges", { json: { order: key, status: 402 }, key });
    expect([answer.status, answer.ok, answer.replayed]).toEqual([402, false, replayed]);
  }
  expect(payments.effects.get(key)).toBe(1);
});

test("nobody there is known to have done nothing", async () => {
  const client = new Client({ baseUrl: `http://127.0.0.1:${await freePort()}`, retry: { ...QUICK, maxAttempts: 3 } });
  const error = await client.post("/charges", { json: {} }).catch((found: unknown) => found);
  expect(error).toBeInstanceOf(GaveUp);
  expect(error).toMatchObject({ attempts: 3, unknown: false });
  expect((error as GaveUp).key).toBeDefined();
  expect(JSON.stringify(error)).not.toContain((error as GaveUp).key);
});

describe("a scripted server", () => {
  type Script = (response: ServerResponse, attempt: number) => void;

  async function scripted<T>(script: Script, use: (url: string, keys: (string | undefined)[]) => Promise<T>): Promise<T> {
    const keys: (string | undefined)[] = [];
    const server = createServer((request, response) => {
      void body(request).then(() => {
        keys.push(request.headersDistinct["idempotency-key"]?.join());
        script(response, keys.length);
      });
    });
    const url = await listening(server);
    try {
      return await use(url, keys);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  }
  const problem = (response: ServerResponse, status: number, members: object) =>
    response.writeHead(status, { "Content-Type": "application/problem+json" }).end(JSON.stringify(members));

  test("in flight is asked again and doesn't count", () =>
    scripted(
      (response, attempt) => {
        if (attempt < 12) problem(response, 409, { code: "idempotency_in_flight", retryable: true, retryAfterMs: 1 });
        else response.writeHead(201).end();
      },
      async (baseUrl, keys) => {
        const client = new Client({ baseUrl, retry: { ...QUICK, base: 1, cap: 1, maxAttempts: 2 } });
        const answer = await client.post("/", { json: {} });
        expect([answer.status, answer.attempts]).toEqual([201, 12]);
        expect(new Set(keys)).toEqual(new Set([answer.key]));
      },
    ));

  test.each([
    [409, "idempotency_in_doubt"],
    [500, "idempotency_record_unreadable"],
  ])("in doubt is told and not retried: %i %s", (status, code) =>
    scripted(
      (response) => problem(response, status, { code, retryable: false }),
      async (baseUrl, keys) => {
        await expect(new Client({ baseUrl, retry: QUICK }).post("/")).rejects.toBeInstanceOf(InDoubt);
        expect(keys.length).toBe(1);
      },
    ));

  test("a plain 409 is an answer unless it names a time", () =>
    scripted(
      (response, attempt) => response.writeHead(409, attempt === 1 ? { "Retry-After": "0" } : {}).end(),
      async (baseUrl, keys) => {
        const answer = await new Client({ baseUrl, retry: QUICK }).post("/");
        expect([answer.status, answer.attempts, new Set(keys).size]).toEqual([409, 2, 1]);
      },
    ));

  test("a broken answer is asked for again", () =>
    scripted(
      (response, attempt) => {
        if (attempt > 1) response.writeHead(201).end("whole");
        else response.writeHead(201, { "Content-Length": 100 }).write("half", () => response.socket?.destroy());
      },
      async (baseUrl, keys) => {
        const answer = await new Client({ baseUrl, retry: QUICK }).post("/");
        expect([answer.text(), keys.length, new Set(keys).size]).toEqual(["whole", 2, 1]);
      },
    ));

  test("an attempt has a time, and the next one begins", () =>
    scripted(
      (response, attempt) => {
        if (attempt > 1) response.writeHead(201).end();
      },
      async (baseUrl, keys) => {
        const answer = await new Client({ baseUrl, retry: { ...QUICK, attemptTimeout: 200 } }).post("/");
        expect([answer.status, new Set(keys).size]).toEqual([201, 1]);
      },
    ));

  test("a signal ends the call", () =>
    scripted(
      () => undefined,
      async (baseUrl, keys) => {
        const stop = AbortSignal.timeout(300);
        await expect(new Client({ baseUrl, retry: QUICK }).post("/", { signal: stop })).rejects.toThrow(/timeout/i);
        expect(keys.length).toBe(1);
      },
    ));

  test("the budget stops a storm", () =>
    scripted(
      (response) => response.writeHead(503).end(),
      async (baseUrl, keys) => {
        const client = new Client({ baseUrl, retry: QUICK, budget: new RetryBudget(5, 0.1) });
        for (let call = 0; call < 20; call++) await expect(client.post("/")).rejects.toBeInstanceOf(GaveUp);
        expect(keys.length).toBeGreaterThan(20);
        expect(keys.length).toBeLessThanOrEqual(20 + 5 + 2 + 1);
      },
    ));
});

const received = (status: number, headers: Record<string, string> = {}, text = "") => ({
  status,
  headers: new Headers(headers),
  body: new TextEncoder().encode(text),
});

test("pauses have full jitter and a cap", () => {
  const policy = { ...DEFAULT_RETRY, maxAttempts: 9, base: 1000, cap: 5000, totalTimeout: 1e9 };
  for (const chance of [0, 0.5, 1]) {
    const course = new Course(policy, new RetryBudget(), undefined, { now: () => 0, chance: () => chance });
    const pauses = [1, 2, 3, 4, 5].map(() => {
      course.begin();
      return course.afterError(new Error("gone"));
    });
    expect(pauses).toEqual([1000, 2000, 4000, 5000, 5000].map((bound) => bound * chance));
  }
});

test("what a server asks for is the least, within bounds", () => {
  const sources = { now: () => 0, chance: () => 1 };
  const policy = { ...DEFAULT_RETRY, base: 1000, totalTimeout: 1e9, maxRetryAfter: 10_000 };
  const course = new Course(policy, new RetryBudget(), undefined, sources);
  course.begin();
  expect(course.afterResponse(received(503, { "Retry-After": "7" }))).toBe(8000);
  expect(() => course.afterResponse(received(503, { "Retry-After": "11" }))).toThrow(GaveUp);
  const now = Date.parse("2026-01-01T00:00:00Z");
  expect(retryAfter(new Headers({ "Retry-After": "Thu, 01 Jan 2026 00:01:30 GMT" }), {}, now)).toBe(90_000);
  expect(retryAfter(new Headers({ "Retry-After": "soon" }), {}, now)).toBeUndefined();
});

test("what the answer says counts more than its status", () => {
  const of = (status: number, members: object = {}) =>
    judge(received(status, { "Content-Type": "application/problem+json" }, JSON.stringify(members))).again;
  expect([of(503), of(503, { retryable: false }), of(422), of(422, { retryable: true }), of(200, { retryable: true })]).toEqual(
    [true, false, false, true, false],
  );
});

test("a member is read as it was written", () => {
  const text = '{"a": [1, {"body": 0}], "answer" : {"x\\"": "}", "body":  {"n": 1.50, "s": "\\u0041"} }}';
  expect(memberText(text, ["answer", "body"])).toBe('{"n": 1.50, "s": "\\u0041"}');
  expect(memberText(text, ["answer", "none"])).toBeUndefined();
  expect(memberText("[]", ["answer"])).toBeUndefined();
});

describe("the outbox", () => {
  const request = { method: "POST", url: "/charges", contentType: "application/json", body: new TextEncoder().encode("{}") };

  test("a call keeps its key until its answer is safe", async () => {
    const [at, order] = [await folder(), { order: newKey() }];
    const client = new Client({ baseUrl: way.url, retry: QUICK, outbox: await Outbox.open(at) });
    let first = "";
    const died = client.call("order-1", async (call) => {
      first = (await call.post("/charges", { json: order })).key;
      throw new Error("died before the answer was kept");
    });
    await expect(died).rejects.toThrow("died");
    const other = new Client({ baseUrl: way.url, retry: QUICK, outbox: await Outbox.open(at) });
    await other.resume(async (call) => {
      const again = await call.send();
      expect([call.name, again.key, again.replayed]).toEqual(["order-1", first, true]);
    });
    expect(await other.outbox.pending()).toEqual([]);
    const next = await client.call("order-1", (call) => Promise.resolve(call.key));
    expect(next).not.toBe(first);
    expect(payments.effects.get(order.order)).toBe(1);
  });

  test("a name has one key for all who ask at once", async () => {
    const at = await folder();
    const entries = await Promise.all(Array.from({ length: 32 }, async () => (await Outbox.open(at)).begin("order-1")));
    expect(new Set(entries.map((entry) => entry.key)).size).toBe(1);
    expect((await readdir(at)).length).toBe(1);
  });

  test("a call has one request", async () => {
    const outbox = await Outbox.open(await folder());
    const entry = await outbox.attach(await outbox.begin("order-1"), request);
    expect(await outbox.attach(entry, request)).toEqual({ ...entry, maybeSent: true });
    await expect(outbox.attach(entry, { ...request, body: new Uint8Array() })).rejects.toBeInstanceOf(CallChanged);
    expect((await outbox.begin("order-1")).request).toEqual(request);
  });

  test("a damaged file is never taken for a new call", async () => {
    const at = await folder();
    const outbox = await Outbox.open(at);
    await outbox.begin("order-1");
    const file = join(at, (await readdir(at))[0]!);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    const whole = await readFile(file, "utf8");
    const [version, name] = [whole.replace('"version":1', '"version":2'), whole.replace("order-1", "order-2")];
    expect(new Set([whole, version, name]).size).toBe(3);
    for (const damage of ["", "{", version, name]) {
      await writeFile(file, damage);
      await expect(outbox.begin("order-1")).rejects.toBeInstanceOf(OutboxDamaged);
    }
  });

  test("what Python left is read, and the other way round", async () => {
    const at = await folder();
    const outbox = await Outbox.open(at);
    await outbox.attach(await outbox.begin("order-1"), request);
    const [file] = await readdir(at);
    const ours = JSON.parse(await readFile(join(at, file!), "utf8")) as Record<string, unknown>;
    expect(Object.keys(ours)).toEqual(["version", "name", "key", "created", "request"]);
    // As Python's `json.dump` writes it.
    const theirs = `{"version": 1, "name": "order-2", "key": "k-2", "created": 1.5, "request": {"method": "POST", "url": "/x", "content_type": null, "body_base64": "aGk="}}`;
    const place = createHash("sha256").update("order-2").digest("hex");
    await writeFile(join(at, `${place}.call`), theirs);
    const [oldest] = await outbox.pending();
    expect(oldest).toEqual({
      name: "order-2",
      key: "k-2",
      created: 1.5,
      request: { method: "POST", url: "/x", contentType: null, body: new TextEncoder().encode("hi") },
      maybeSent: true,
    });
  });
});
