/** Every case of `spec/vectors`: what this package computes is what the other languages compute. */
import { readFileSync, readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { canonicalize } from "../src/canonical.js";
import { KeyInvalid, PayloadInvalid } from "../src/errors.js";
import { type Part, downstreamKey, fingerprint, identity } from "./support/identity.js";
import { type Counted, NAMES, counted, hasCredentials } from "../src/credentials.js";
import { outcomeOfStatus } from "../src/http.js";
import { checkKey } from "../src/keys.js";
import { type PackedRecord, RecordInvalid, pack, unpack } from "./support/record.js";

const VECTORS = new URL("../../../spec/vectors/", import.meta.url);

type Text = string | { repeat: string; times: number }[];
interface Secret {
  material: string;
}

function cases<T>(file: string, part = "cases"): T[] {
  const found = (JSON.parse(readFileSync(new URL(file, VECTORS), "utf8")) as Record<string, T[]>)[part];
  if (!found?.length) throw new Error("an empty file shows nothing");
  return found;
}

const textOf = (given: Text) =>
  typeof given === "string" ? given : given.map((piece) => piece.repeat.repeat(piece.times)).join("");
const unhex = (text: string) => new Uint8Array(Buffer.from(text, "hex"));
const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");
const material = (secret: Secret | null) => unhex(secret?.material ?? "");

interface KeyCase {
  text: Text;
  max_bytes: number;
  extra: string;
  ok: boolean;
  error: string | null;
}

test.each(cases<KeyCase>("keys.json"))("key $text", (given) => {
  let error: string | null = null;
  try {
    checkKey(textOf(given.text), given.max_bytes, given.extra);
  } catch (refused) {
    if (!(refused instanceof KeyInvalid)) throw refused;
    error = refused.reason;
  }
  expect([error === null, error]).toEqual([given.ok, given.error]);
});

interface PartCase {
  kind: Part["kind"];
  hex?: string;
  text?: Text;
  canonical?: string;
}
interface FingerprintCase {
  name: string;
  secret: Secret | null;
  parts: PartCase[];
  fingerprint: string | null;
  refused: string | null;
}

const partOf = (part: PartCase): Part => ({
  kind: part.kind,
  data: part.hex === undefined ? textOf(part.text ?? "") : unhex(part.hex),
});

describe.each(cases<FingerprintCase>("fingerprint.json"))("$name", (given) => {
  test("fingerprint", () => {
    let refused: string | null = null;
    let made: string | null = null;
    try {
      made = hex(fingerprint(given.parts.map(partOf), material(given.secret)));
    } catch (error) {
      if (!(error instanceof PayloadInvalid)) throw error;
      refused = error.reason;
    }
    expect([made, refused]).toEqual([given.fingerprint, given.refused]);
  });
  test("canonical text", () => {
    for (const part of given.parts) {
      if (part.canonical !== undefined) expect(canonicalize(partOf(part).data)).toBe(part.canonical);
    }
  });
});

interface IdentityCase {
  secret: Secret | null;
  environment: Text;
  tenant: Text;
  scope: Text;
  principal: Text;
  key: Text;
  identity: string;
  address: string;
  seal: string;
}

test.each(cases<IdentityCase>("identity.json"))("identity $identity", (given) => {
  const { environment, tenant, scope, principal, key } = given;
  const made = identity(
    {
      environment: textOf(environment),
      tenant: textOf(tenant),
      scope: textOf(scope),
      principal: textOf(principal),
      key: textOf(key),
    },
    material(given.secret),
  );
  expect([hex(made), hex(made.subarray(0, 16)), hex(made.subarray(16))]).toEqual([
    given.identity,
    given.address,
    given.seal,
  ]);
});

interface DownstreamCase {
  secret: Secret | null;
  identity: string;
  step: string;
  key: string;
}

test.each(cases<DownstreamCase>("downstream.json"))("downstream key $key", (given) => {
  expect(downstreamKey(unhex(given.identity), given.step, material(given.secret))).toBe(given.key);
});

interface RecordCase {
  name: string;
  packed: string;
  record: Record<string, string | number | Record<string, string | null> | null>;
}

function recordOf(given: RecordCase["record"]): PackedRecord {
  const text = (name: string) => given[name] as string;
  const answer = given["answer"] as Record<string, string | null> | null;
  return {
    state: text("state") as PackedRecord["state"],
    crash: text("crash") as PackedRecord["crash"],
    fingerprint: unhex(text("fingerprint")),
    seal: unhex(text("seal")),
    fence: BigInt(text("fence")),
    token: unhex(text("token")),
    leaseMs: given["lease_ms"] as number,
    retentionMs: BigInt(text("retention_ms")),
    createdUs: BigInt(text("created_us")),
    writtenUs: BigInt(text("written_us")),
    attempt: given["attempt"] as number,
    maxAttempts: given["max_attempts"] as number,
    secretId: given["secret_id"] as number,
    environment: text("environment"),
    tenant: text("tenant"),
    scope: text("scope"),
    hint: text("hint"),
    checkpoint: unhex(text("checkpoint")),
    answer: answer && {
      head: unhex(answer["head"] ?? ""),
      body: typeof answer["body"] === "string" ? unhex(answer["body"]) : null,
      omittedBytes: typeof answer["omitted_bytes"] === "string" ? BigInt(answer["omitted_bytes"]) : null,
      digest: typeof answer["digest"] === "string" ? unhex(answer["digest"]) : null,
    },
  };
}

test.each(cases<RecordCase>("record.json"))("record $name", (given) => {
  const record = recordOf(given.record);
  expect(hex(pack(record))).toBe(given.packed);
  expect(unpack(unhex(given.packed), record.seal)).toEqual(record);
});

test.each(cases<{ name: string; same_as: string; packed: string }>("record.json", "skipped"))("skipped $name", (given) => {
  const same = cases<RecordCase>("record.json").find((other) => other.name === given.same_as);
  expect(unpack(unhex(given.packed))).toEqual(recordOf(same!.record));
});

test.each(cases<{ name: string; packed: string; seal: string; error: string }>("record.json", "refused"))(
  "refused $name",
  (given) => {
    const read = () => unpack(unhex(given.packed), unhex(given.seal));
    expect(read).toThrow(RecordInvalid);
    expect(read).toThrow(given.error);
  },
);

test("every file is read", () => {
  // Only stores encrypt records.
  const files = readdirSync(VECTORS).filter((name) => name.endsWith(".json") && name !== "encrypted.json");
  const here = ["credentials.json", "downstream.json", "fingerprint.json", "identity.json", "keys.json", "record.json"];
  const elsewhere = ["tools.json", "webhooks.json"];
  expect(files.sort()).toEqual([...here, ...elsewhere].sort());
});

test("the same headers are credentials", () => {
  expect(NAMES).toEqual(cases<string>("credentials.json", "headers"));
});

interface CredentialsCase {
  name: string;
  request: [string, string][];
  more: string[];
  cookies: string[];
  counts: Counted;
}

test.each(cases<CredentialsCase>("credentials.json"))("credentials: $name", (given) => {
  const header = (wanted: string) => given.request.filter(([name]) => name.toLowerCase() === wanted).map(([, value]) => value);
  const found = counted({ headers: given.more, cookies: given.cookies }, header);
  expect(found.filter(([, values]) => values.length > 0)).toEqual(given.counts);
  expect(hasCredentials(found)).toBe(given.counts.length > 0);
});

interface AnswerCase {
  status: number;
  location: string | null;
  anonymous: boolean;
  kept: boolean;
}

test.each(cases<AnswerCase>("credentials.json", "answers"))("$status to $location is kept: $kept", (given) => {
  const outcome = outcomeOfStatus(given.status, undefined, given.anonymous, given.location ?? undefined);
  expect(outcome === "complete" || outcome === "fail").toBe(given.kept);
});
