/** The engine in this process: the same answers as a sidecar's, what can't be opened, calls that wait, and closing. */
import { mkdtemp, readFile, readdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { EmbeddedStore } from "../src/engine.js";
import { Conflict, GaveUp, type Lease, OpenError, Semel, Unrecorded, newKey } from "../src/index.js";
import { loadNative } from "../src/native.js";
import { type OpenOptions, nativeOptions, open } from "../src/open.js";
import { needs, sidecar, sleep } from "./support/servers.js";
import { STORES, newEnvironment, storeUrl } from "./support/ways.js";

const VECTORS = new URL("../../../spec/vectors/", import.meta.url);
const TOKEN = "0".repeat(32);
const SECRET = "one secret of 16 bytes";
const redisUrl = () => needs("SEMEL_TEST_REDIS_URL", "cargo xtask services up redis");

interface Held {
  once: Semel;
  /** The id of the claim. */
  id: string;
  end: () => void;
  ended: Promise<unknown>;
}

/** A store in memory, of which a key is running until `end` is called. */
async function running(options: OpenOptions = {}): Promise<Held> {
  const once = await open("memory://", { terms: { waitMs: 60_000 }, retry: { attemptTimeout: 90_000 }, ...options });
  let end: () => void = () => undefined;
  const until = new Promise<string>((resolve) => (end = () => resolve("held")));
  let ended: Promise<unknown> = Promise.resolve();
  const id = await new Promise<string>((begun) => {
    const effect = (lease: Lease | undefined) => {
      begun(lease?.id ?? "");
      return until;
    };
    ended = once.run({ scope: "slow", key: "held" }, effect).catch((error: unknown) => error);
  });
  return { once, id, end, ended };
}

describe.each(STORES)("%s", (kind) => {
  test("a store runs each key once, and replays it to the next process", async () => {
    const [url, environment, key, runs] = [storeUrl(kind), newEnvironment(), newKey(), [] as number[]];
    const once = await open(url, { environment });
    const operation = { scope: "charge", key, payload: { cents: 5 } };
    const effect = async (lease: Lease | undefined) => {
      runs.push(lease?.fence ?? 0);
      return { key: await lease?.deriveKey("psp") };
    };
    const [first, again] = [await once.run(operation, effect), await once.run(operation, effect)];
    expect([first.replayed, again.replayed, again.value]).toEqual([false, true, first.value]);
    await expect(once.run({ ...operation, payload: { cents: 6 } }, effect)).rejects.toBeInstanceOf(Conflict);
    expect(await once.api.lookup({ scope: "charge", key })).toMatchObject({ status: "completed", answer: { body: first.value } });
    const together = await Promise.all(Array.from({ length: 8 }, () => once.run({ scope: "charge", key: newKey() }, effect)));
    expect(new Set(together.map(({ replayed }) => replayed))).toEqual(new Set([false]));
    await once.close();
    if (kind === "memory") return;
    const next = await open(url, { environment });
    expect((await next.run(operation, effect)).value).toEqual(first.value);
    await next.close();
    expect(runs.length).toBe(9);
  });
});

type Asked = [method: string, path: string, body?: object];
const CLAIM = { scope: "charge", key: "k-1", token: TOKEN, payload: { a: 1 } };
const REQUESTS: Asked[] = [
  ["POST", "/v1/claims", { ...CLAIM, derive: ["psp"] }],
  ["POST", "/v1/claims", CLAIM],
  ["POST", "/v1/claims", { ...CLAIM, token: undefined, payload: { a: 2 } }],
  ["POST", "/v1/claims", { ...CLAIM, token: undefined, policy: { on_busy: "refuse" } }],
  ["POST", "/v1/claims", { scope: "charge", key: "a b" }],
  ["POST", "/v1/claims", { scope: "charge" }],
  ["POST", "/v1/claims", { scope: "charge", key: "k-2", other: 1 }],
  ["POST", "/v1/claims", { scope: "charge", key: "k-2", policy: { lease_ms: 1 } }],
  ["POST", "/v1/claims", { scope: "charge", key: "k-2", derive: Array.from({ length: 17 }, (_, name) => String(name)) }],
  ["POST", "/v1/claims/{id}/keys", { names: ["psp", "mail"] }],
  ["GET", "/v1/claims/{id}"],
  ["GET", "/v1/claims/{id}?wait_ms=x"],
  ["GET", `/v1/claims/${"0".repeat(64)}`],
  ["POST", "/v1/claims/{id}/renew", { token: TOKEN, fence: 1, checkpoint: { page: 1 } }],
  ["POST", "/v1/claims/{id}/renew", { token: "1".repeat(32), fence: 1 }],
  ["POST", "/v1/claims/{id}/settle", { token: "1".repeat(32), fence: 1, outcome: "complete", answer: { body: 1 } }],
  ["POST", "/v1/claims/{id}/settle", { token: TOKEN, fence: 1, outcome: "complete", answer: { body: [1] } }],
  ["POST", "/v1/claims", { ...CLAIM, token: undefined }],
  ["POST", "/v1/lookups", { scope: "charge", key: "k-1", payload: { a: 2 } }],
  ["POST", "/v1/lookups", { scope: "charge", key: "never" }],
  ["DELETE", "/v1/claims"],
];
const VOLATILE = new Set(["fence", "took_ms", "expires_in_ms", "original_time", "settled_time", "retryAfterMs", "instance"]);

/** Without what two runs never share. */
function steady(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(steady);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).filter(([name]) => !VOLATILE.has(name)).map(([name, member]) => [name, steady(member)]));
}

test("the same requests get the same answers both ways", async () => {
  const environment = newEnvironment();
  const way = await sidecar(undefined, "memory://", [`environment=${environment}`]);
  const store = new EmbeddedStore("memory://", nativeOptions({ environment }));
  let id = "";
  const fences = [0, 0];
  const codes = new Set<unknown>();
  for (const [method, asked, body] of REQUESTS) {
    const path = asked.replace("{id}", id);
    // A store's clock decides where its fences begin.
    const [far = "", near = ""] = fences.map((fence) => JSON.stringify(body && "fence" in body ? { ...body, fence } : body));
    const headers: Record<string, string> = body ? { "Content-Type": "application/json" } : {};
    const there = await fetch(`${way.url}/_semel${path}`, { method, headers, ...(body ? { body: far } : {}) });
    const here = await store.ask(method, path, body && near, 30_000);
    const told = [(await there.json()) as object, JSON.parse(new TextDecoder().decode(here.body)) as object];
    expect([here.status, steady(told[1])], `${method} ${path}`).toEqual([there.status, steady(told[0])]);
    for (const name of ["content-type", "cache-control"]) expect(here.headers.get(name)).toBe(there.headers.get(name));
    expect(here.headers.has("retry-after")).toBe(there.headers.has("retry-after"));
    for (const [at, answer] of told.entries()) fences[at] ||= (answer as { fence: number }).fence;
    id ||= (told[1] as { id: string }).id;
    codes.add((told[1] as { code?: string }).code);
  }
  expect(codes.size).toBeGreaterThanOrEqual(8);
  await store.close();
  await way.stop();
});

test("a request that is too large is refused", async () => {
  const once = await open("memory://");
  const large = once.run({ scope: "big", key: "k", payload: "x".repeat(3_000_000) }, () => 1);
  await expect(large).rejects.toMatchObject({ status: 413, code: "idempotency_body_too_large" });
  await once.close();
});

test("a sidecar and a process share a store", async () => {
  const environment = newEnvironment();
  const file = join(await mkdtemp(join(tmpdir(), "semel-secret-")), "secret");
  await writeFile(file, `${SECRET}\n`);
  const way = await sidecar(undefined, redisUrl(), [`environment=${environment}`, `store.secret_file=${file}`]);
  const far = new Semel({ url: `${way.url}/_semel` });
  const near = await open(redisUrl(), { environment, secret: SECRET });
  const charge = async (semel: Semel, key: string, value: string) => (await semel.run({ scope: "charge", key }, () => value)).value;
  expect([await charge(far, "k-1", "far"), await charge(near, "k-1", "near")]).toEqual(["far", "far"]);
  expect([await charge(near, "k-2", "near"), await charge(far, "k-2", "far")]).toEqual(["near", "near"]);
  await near.close();
  await way.stop();
});

interface Identity {
  environment: string;
  tenant: string;
  scope: string;
  principal: string;
  key: string;
  secret: { id: number; material: string } | null;
  identity: string;
}

test("identities are those of the vectors", async () => {
  const { cases } = JSON.parse(await readFile(new URL("identity.json", VECTORS), "utf8")) as { cases: Identity[] };
  // The protocol API knows no principals, and names of printable ASCII only.
  const taken = cases.filter((found) => !found.principal && /^[ -~]*$/.test(found.scope + found.tenant));
  expect(taken.length).toBeGreaterThanOrEqual(8);
  for (const { environment, tenant, scope, key, secret, identity } of taken) {
    const keyed = secret ? { secret: Buffer.from(secret.material, "hex"), secretId: secret.id } : {};
    const once = await open("memory://", { environment, ...keyed });
    const { id } = await once.api.claim({ scope, key, token: TOKEN, ...(tenant ? { tenant } : {}) });
    expect(id).toBe(identity);
    await once.close();
  }
});

test.each<[string, OpenOptions, string]>([
  ["nothing://", {}, "nothing"],
  ["redis://:hunter2@127.0.0.1:1", {}, ""],
  ["sqlite:///proc/no/such.db", {}, ""],
  ["memory://", { secret: "short" }, "16"],
  ["memory://", { secret: SECRET, secretId: 70_000 }, "65535"],
  ["memory://", { environment: "x".repeat(1000) }, ""],
  ["memory://", { encryptionKeys: "nonsense" }, "encryption_keys"],
])("what can't be opened says why: %s", async (url, options, says) => {
  const error: unknown = await open(url, options).catch((found: unknown) => found);
  expect(error).toBeInstanceOf(OpenError);
  expect(String(error)).toContain(says);
  expect(String(error)).not.toMatch(/hunter2|nonsense/);
});

test("the URL of a sidecar is a sidecar, which has its own settings", async () => {
  const way = await sidecar();
  const once = await open(`${way.url}/_semel`, { retry: { maxAttempts: 2 } });
  expect((await once.run({ scope: "charge", key: newKey() }, () => 1)).value).toBe(1);
  await once.close();
  await way.stop();
  await expect(open(way.url, { environment: "x" })).rejects.toThrow("environment");
  await expect(open("memory://", { token: "0123456789abcdef" })).rejects.toThrow("token");
});

test("without the native module the error says what to do", () => {
  const load = () => loadNative("../no-such.node");
  expect(load).toThrow(OpenError);
  expect(load).toThrow("semel serve");
  expect(load).toThrow(process.platform);
});

test("two secrets on one store are refused", async () => {
  const environment = newEnvironment();
  await (await open(redisUrl(), { environment, secret: SECRET })).close();
  await (await open(redisUrl(), { environment, secret: new TextEncoder().encode(`${SECRET}\r\n`) })).close();
  await expect(open(redisUrl(), { environment, secret: "another secret, as long" })).rejects.toBeInstanceOf(OpenError);
});

test("encrypted answers are read with their key", async () => {
  const folder = await mkdtemp(join(tmpdir(), "semel-encrypted-"));
  for (const replayed of [false, true]) {
    const once = await open(`sqlite://${folder}/keys.db`, { encryptionKeys: `1:${"ab".repeat(32)}` });
    expect((await once.run({ scope: "charge", key: "k" }, () => "a plain answer")).replayed).toBe(replayed);
    await once.close();
  }
  // SQLite removes its log when the last connection is closed, which may be later.
  for (const file of await readdir(folder)) {
    expect(await readFile(join(folder, file), "latin1").catch(() => "")).not.toContain("a plain answer");
  }
});

test("a closed store stays closed, and closing ends the calls that wait", async () => {
  const { once, end, ended } = await running();
  const waiting = once.run({ scope: "slow", key: "held" }, () => "second").catch((error: unknown) => error);
  await sleep(100);
  await Promise.all([once.close(), once.close()]);
  expect(String(await waiting)).toBe("SemelError: the store was closed");
  await expect(once.run({ scope: "slow", key: "other" }, () => 1)).rejects.toThrow("closed");
  // What ran meanwhile has happened, and nobody could record it.
  end();
  expect(await ended).toBeInstanceOf(Unrecorded);
});

test("a store that is closed while it opens opens nothing", async () => {
  const store = new EmbeddedStore("memory://", nativeOptions({}));
  const opening = store.connect().catch((error: unknown) => error);
  await store.close();
  await expect(store.ask("GET", "/v1/claims/x", undefined, 1000)).rejects.toThrow("closed");
  await opening;
});

test("the event loop goes on while a call waits", async () => {
  const { once, id, end } = await running();
  let turns = 0;
  const counting = setInterval(() => (turns += 1), 2);
  expect(await once.api.look(id, 500)).toMatchObject({ status: "running" });
  clearInterval(counting);
  expect(turns).toBeGreaterThan(20);
  end();
  await once.close();
});

test("an attempt has its time", async () => {
  const { once, id, end } = await running({ retry: { maxAttempts: 2, base: 1, attemptTimeout: 100 } });
  const gaveUp: unknown = await once.api.look(id, 30_000).catch((error: unknown) => error);
  expect(gaveUp).toBeInstanceOf(GaveUp);
  expect(gaveUp).toMatchObject({ attempts: 2, message: expect.stringContaining("TimeoutError") as string });
  end();
  await once.close();
});

test("a call that is aborted ends in the engine too", async () => {
  const { once, id, end } = await running();
  // Ten may wait for a key at a time: more than that wait here, one after the other.
  for (let turn = 0; turn < 12; turn++) {
    const aborting = new AbortController();
    const waiting = once.api.send("GET", `/v1/claims/${id}?wait_ms=30000`, undefined, undefined, aborting.signal);
    setTimeout(() => aborting.abort(new Error("left")), 20);
    await expect(waiting).rejects.toThrow("left");
  }
  expect(await once.api.look(id, 10)).toMatchObject({ status: "running" });
  const already = AbortSignal.abort(new Error("before"));
  await expect(once.run({ scope: "slow", key: "k", signal: already }, () => 1)).rejects.toThrow("before");
  end();
  await once.close();
});
