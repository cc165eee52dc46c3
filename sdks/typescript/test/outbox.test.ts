/** Calls in the outbox that more than one process works on, and what a sender may say of them. */
import { mkdtemp, readFile, readdir, rename, utimes } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeEach, expect, test, vi } from "vitest";
import { type Call, CallChanged, Client, type ClientOptions, GaveUp } from "../src/index.js";
import { Outbox, type StoredRequest } from "../src/outbox.js";
import type { Fetch } from "../src/send.js";

const body = new TextEncoder().encode("{}");
const REQUEST: StoredRequest = { method: "POST", url: "http://a.test/charges", contentType: "application/json", body };
const RETRY = { base: 1, cap: 1, maxAttempts: 2 };
const refused: Fetch = () => Promise.reject(Object.assign(new TypeError("fetch failed"), { code: "ECONNREFUSED" }));

/** What another process does right before a file is renamed. */
const meanwhile = vi.hoisted((): { act?: (() => Promise<unknown>) | undefined } => ({}));
vi.mock("node:fs/promises", async (original) => {
  const real = await original<typeof import("node:fs/promises")>();
  const renaming: typeof real.rename = async (from, to) => {
    const { act } = meanwhile;
    delete meanwhile.act;
    await act?.();
    await real.rename(from, to);
  };
  return { ...real, rename: renaming };
});

let at: string;
let outbox: Outbox;
beforeEach(async () => {
  at = await mkdtemp(join(tmpdir(), "semel-outbox-"));
  outbox = await Outbox.open(at);
});

const client = (options: ClientOptions = {}) => new Client({ retry: RETRY, outbox, fetch: refused, ...options });
/** A service that takes everything, and the URLs that it was asked by. */
function taking(): { urls: string[]; fetch: Fetch } {
  const urls: string[] = [];
  const fetch: Fetch = (url) => {
    urls.push(url);
    return Promise.resolve(new Response(null, { status: 201 }));
  };
  return { urls, fetch };
}
async function again(call: Call): Promise<void> {
  await call.send();
}
const fileText = async () => readFile(join(at, (await readdir(at))[0]!), "utf8");

/** The first one that is pending, as a process saw it some time ago. */
async function stale() {
  const [entry] = await outbox.pending();
  return entry!;
}

test("a call that has got its request since isn't forgotten by who saw it without", async () => {
  const begun = await outbox.begin("order-1");
  const old = await stale();
  const kept = await outbox.attach(begun, REQUEST);
  await outbox.forget(old);
  expect((await outbox.get("order-1"))?.request).toEqual(REQUEST);
  await outbox.forget(kept);
  expect(await readdir(at)).toEqual([]);
});

test("a call that was begun anew isn't forgotten, nor sent, by who saw the one before", async () => {
  for (const sent of [false, true]) {
    const begun = await outbox.begin("order-1");
    if (sent) await outbox.attach(begun, REQUEST);
    const old = await stale();
    await outbox.forget(old);
    const next = await outbox.begin("order-1");
    if (sent) await outbox.attach(next, REQUEST);
    await outbox.forget(old);
    expect((await outbox.get("order-1"))?.key).toBe(next.key);
    await expect(outbox.attach(old, REQUEST)).rejects.toBeInstanceOf(CallChanged);
    await outbox.forget(await stale());
  }
});

test("resuming takes nothing from a process that is at work", async () => {
  const begun = await outbox.begin("order-1");
  await client().resume(async (call) => {
    expect(call.sent).toBe(false);
    await outbox.attach(begun, REQUEST);
  });
  expect((await outbox.get("order-1"))?.request).toEqual(REQUEST);
});

test("a request that another has kept is the call's, and another one is refused", async () => {
  const begun = await outbox.begin("order-1");
  await outbox.attach(await stale(), REQUEST);
  await expect(outbox.attach(begun, { ...REQUEST, url: "http://a.test/refunds" })).rejects.toBeInstanceOf(CallChanged);
  expect(await outbox.attach(begun, REQUEST)).toMatchObject({ key: begun.key, maybeSent: true });
});

test("a call that was forgotten meanwhile is written anew before it is sent, with its key", async () => {
  const begun = await outbox.begin("order-1");
  await outbox.forget(await stale());
  expect(await outbox.attach(begun, REQUEST)).toMatchObject({ maybeSent: true });
  expect(await outbox.get("order-1")).toMatchObject({ key: begun.key, request: REQUEST });
});

test("a request that comes between the look and the removal stays", async () => {
  const begun = await outbox.begin("order-1");
  meanwhile.act = () => outbox.attach(begun, REQUEST);
  await outbox.forget(await stale());
  expect(meanwhile.act).toBeUndefined();
  expect((await outbox.get("order-1"))?.request).toEqual(REQUEST);
  expect((await readdir(at)).length).toBe(1);
});

test("any number that forget and attach at once leave the request there", async () => {
  for (let turn = 0; turn < 10; turn++) {
    const name = `order-${turn}`;
    const begun = await outbox.begin(name);
    await Promise.all([outbox.forget(begun), outbox.attach(begun, REQUEST), outbox.forget(begun), outbox.forget(begun)]);
    expect((await outbox.get(name))?.request).toEqual(REQUEST);
  }
  expect((await readdir(at)).length).toBe(10);
});

test("what a process that died while forgetting left aside is a call again", async () => {
  const kept = await outbox.attach(await outbox.begin("order-1"), REQUEST);
  const [file] = await readdir(at);
  const aside = join(at, `.old-${"0".repeat(16)}`);
  await rename(join(at, file!), aside);
  // As old as its call may be, it is left alone as long as somebody may be at it.
  await utimes(aside, 1, 1);
  await Outbox.open(at);
  expect(await outbox.pending()).toEqual([]);
  const soon = Date.now() + 2 * 3_600_000;
  const clock = vi.spyOn(Date, "now").mockReturnValue(soon);
  await Outbox.open(at);
  clock.mockRestore();
  expect(await outbox.pending()).toMatchObject([{ name: "order-1", key: kept.key }]);
  expect(await readdir(at)).toEqual([file]);
});

const gaveUp = async (sent: Promise<unknown>) => {
  const error = await sent.catch((found: unknown) => found);
  expect(error).toBeInstanceOf(GaveUp);
  return (error as GaveUp).unknown;
};

test("what nobody can have sent is known not to be done", async () => {
  expect(await gaveUp(client().call("order-1", (call) => call.post("http://a.test/charges")))).toBe(false);
});

test("what an earlier process may have sent may be done, though this one reached nobody", async () => {
  await outbox.attach(await outbox.begin("order-1"), REQUEST);
  expect(await gaveUp(client().resume(again))).toBe(true);
  expect(await gaveUp(client().call("order-1", (call) => call.post(REQUEST.url, { json: {} })))).toBe(true);
});

test("a call keeps the whole URL, so that who has no base can send it", async () => {
  const { urls, fetch } = taking();
  const died = (baseUrl: string) =>
    client({ baseUrl, fetch }).call("order-1", async (call) => {
      await call.post("/charges");
      throw new Error("died");
    });
  await expect(died("http://a.test/v1/")).rejects.toThrow("died");
  expect(JSON.parse(await fileText())).toMatchObject({ request: { url: "http://a.test/v1/charges" } });
  await expect(died("http://a.test/v1")).rejects.toThrow("died");
  await client({ baseUrl: "http://b.test", fetch }).resume(again);
  expect(urls).toEqual(Array.from({ length: 3 }, () => "http://a.test/v1/charges"));
});

test("a path that an earlier version kept is sent with the base, and is the same request", async () => {
  const { urls, fetch } = taking();
  const sender = client({ baseUrl: "http://a.test", fetch });
  for (const turn of [1, 2]) {
    await outbox.attach(await outbox.begin("order-1"), { ...REQUEST, url: "/charges" });
    if (turn === 1) await sender.resume(again);
    else await sender.call("order-1", (call) => call.post("/charges", { json: {} }));
  }
  expect(urls).toEqual(["http://a.test/charges", "http://a.test/charges"]);
  expect(await outbox.pending()).toEqual([]);
});

test("a base without a host is put before what was kept only once", async () => {
  const { urls, fetch } = taking();
  await client({ baseUrl: "/api", fetch }).call("order-1", (call) => call.post("/charges"));
  expect(urls).toEqual(["/api/charges"]);
});
