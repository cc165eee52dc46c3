/** The client in other places than Node: browsers without an iterator of bodies, pages without HTTPS, bases of all kinds. */
import { afterEach, describe, expect, test, vi } from "vitest";
import { Client, GaveUp, PayloadInvalid, newKey } from "../src/index.js";
import { FakeSemel } from "../src/testing.js";

afterEach(() => vi.unstubAllGlobals());

interface Sent {
  url: string;
  method: string | undefined;
  headers: Headers;
  body: string;
}

/** A client of a server that says one thing, and what it was sent. */
function recorded(options: ConstructorParameters<typeof Client>[0] = {}, said: () => Response = () => Response.json({})) {
  const sent: Sent[] = [];
  const fetch = (url: string, init: RequestInit) => {
    const body = new TextDecoder().decode((init.body as Uint8Array<ArrayBuffer> | undefined) ?? new Uint8Array());
    sent.push({ url, method: init.method, headers: new Headers(init.headers), body });
    return Promise.resolve(said());
  };
  return { client: new Client({ fetch, retry: { base: 1, cap: 2 }, ...options }), sent };
}

test("a body is read where streams have no iterator, as in Safari", async () => {
  const { client, sent } = recorded({ baseUrl: "http://a" }, () => {
    const response = Response.json({ charge: "ch_1" }, { status: 201 });
    Object.defineProperty(response.body, Symbol.asyncIterator, { value: undefined });
    return response;
  });
  expect((await client.post("/charges", { json: {} })).json()).toEqual({ charge: "ch_1" });
  expect(sent.length).toBe(1);
});

test("an answer past the bound is left, and its connection with it", async () => {
  let left = false;
  const endless = () =>
    new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new Uint8Array(1024 * 1024)),
      cancel: () => void (left = true),
    });
  const { client } = recorded({ baseUrl: "http://a" }, () => new Response(endless()));
  await expect(client.post("/")).rejects.toThrow("the answer has more than");
  expect(left).toBe(true);
});

test("keys are made on pages without HTTPS, where there is no randomUUID", () => {
  vi.stubGlobal("crypto", { getRandomValues: crypto.getRandomValues.bind(crypto) });
  const keys = Array.from({ length: 100 }, () => newKey());
  expect(new Set(keys).size).toBe(100);
  for (const key of keys) expect(key).toMatch(/^idem_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

describe("a path", () => {
  test.each([
    ["https://api.example.com", "charges", "https://api.example.com/charges"],
    ["https://api.example.com", "/charges", "https://api.example.com/charges"],
    ["https://api.example.com/v1", "/charges", "https://api.example.com/v1/charges"],
    ["https://api.example.com/v1/", "charges?a=1", "https://api.example.com/v1/charges?a=1"],
    ["https://api.example.com", ".evil.test/x", "https://api.example.com/.evil.test/x"],
    ["https://api.example.com", "@evil.test/x", "https://api.example.com/@evil.test/x"],
    ["https://api.example.com", ":99/x", "https://api.example.com/:99/x"],
    ["https://api.example.com", "//evil.test/x", "https://api.example.com/evil.test/x"],
    ["https://api.example.com", "\\\\evil.test/x", "https://api.example.com/\\\\evil.test/x"],
    ["https://api.example.com", "", "https://api.example.com"],
    ["https://api.example.com", "https://other.test/x", "https://other.test/x"],
    ["/api", "charges", "/api/charges"],
    [undefined, "/charges", "/charges"],
  ])("of %s and %s stays on its host", async (baseUrl, url, whole) => {
    const { client, sent } = recorded(baseUrl === undefined ? {} : { baseUrl });
    await client.post(url);
    expect(sent[0]?.url).toBe(whole);
    if (baseUrl?.startsWith("https") && !url.startsWith("https")) expect(new URL(whole).host).toBe("api.example.com");
  });

  test("may have a query", async () => {
    const { client, sent } = recorded({ baseUrl: "http://a" });
    await client.get("/charges", { query: { order: "ord 1", limit: 2, tag: ["a", "b"], none: undefined } });
    await client.get("/charges?x=1", { query: new URLSearchParams({ y: "2" }) });
    expect(sent.map(({ url }) => url)).toEqual(["http://a/charges?order=ord+1&limit=2&tag=a&tag=b", "http://a/charges?x=1&y=2"]);
  });

  test("a base that has a query of its own is refused", () => {
    expect(() => new Client({ baseUrl: "https://api.example.com/?key=1" })).toThrow("baseUrl");
  });
});

test("every method has a verb, and those that change nothing send no key", async () => {
  const { client, sent } = recorded({ baseUrl: "http://a" }, () => Response.json({ cents: 5 }));
  const { cents } = (await client.get("/c")).json<{ cents: number }>();
  expect(cents).toBe(5);
  expect((await client.get("/c")).key).toBe("");
  const key = newKey();
  for (const verb of ["post", "put", "patch", "delete"] as const) {
    expect((await client[verb]("/c", { json: { a: 1 }, key })).key).toBe(key);
  }
  expect(sent.map(({ method, headers }) => [method, headers.get("idempotency-key")])).toEqual([
    ["GET", null],
    ["GET", null],
    ["POST", key],
    ["PUT", key],
    ["PATCH", key],
    ["DELETE", key],
  ]);
});

test("giving up a request that changes nothing leaves nothing unknown", async () => {
  const { client } = recorded({ baseUrl: "http://a", retry: { base: 1, maxAttempts: 2 } }, () => {
    throw new TypeError("cut");
  });
  await expect(client.get("/c")).rejects.toMatchObject({ unknown: false, key: undefined });
  await expect(client.post("/c")).rejects.toMatchObject({ unknown: true });
});

test.each([NaN, Infinity])("%s, which JSON would make null, is refused and not sent", async (cents) => {
  const { client, sent } = recorded({ baseUrl: "http://a" });
  await expect(client.post("/c", { json: { order: [cents] } })).rejects.toBeInstanceOf(PayloadInvalid);
  const fake = new FakeSemel();
  const pay = (compare: "payload" | "fingerprint") =>
    fake.semel().run({ scope: "pay", key: "k", payload: { cents }, compare }, () => "paid");
  await expect(pay("payload")).rejects.toBeInstanceOf(PayloadInvalid);
  await expect(pay("fingerprint")).rejects.toBeInstanceOf(PayloadInvalid);
  expect([sent.length, fake.calls.length]).toEqual([0, 0]);
});

test("what is undefined leaves the setting before it as it is", async () => {
  const { client, sent } = recorded({ baseUrl: "http://a", retry: { maxAttempts: undefined, base: 1 } as object }, () => new Response(null, { status: 503 }));
  await expect(client.post("/c")).rejects.toBeInstanceOf(GaveUp);
  expect(sent.length).toBe(6);
  const fake = new FakeSemel();
  const semel = fake.semel({ terms: { crash: "hold" } });
  const operation = { scope: "pay", key: "k", crash: undefined, derive: ["bank"] } as { scope: string; key: string };
  await expect(semel.run(operation, () => Promise.reject(new Error("half-way")))).rejects.toThrow("half-way");
  expect(fake.state("pay", "k")).toBe("in_doubt");
});
