/** The packed record, version 1: what a store keeps for a key. For tools that look into one; nothing else needs it. */

const STATES = ["running", "completed", "failed", "in_doubt", "released"] as const;
const CRASH = ["takeover", "hold"] as const;
const HEADER = 96;
const [CHECKPOINT, HEAD, BODY, OMITTED, ELSEWHERE, OPTIONAL] = [1, 2, 3, 4, 5, 128] as const;
const MOST_LABEL = [128, 128, 128, 8] as const;

/** Why bytes are not the record asked for. */
export class RecordInvalid extends Error {
  constructor(readonly reason: "unknown_version" | "unknown_section" | "malformed" | "foreign") {
    super(`not the record asked for: ${reason}`);
  }
}

/** What is replayed. One of `body` and `omittedBytes`; with a `digest`, the body lies elsewhere. */
export interface RecordAnswer {
  head: Uint8Array;
  body: Uint8Array | null;
  omittedBytes: bigint | null;
  digest: Uint8Array | null;
}

/** The fields, in the order of the specification. */
export interface PackedRecord {
  state: (typeof STATES)[number];
  crash: (typeof CRASH)[number];
  fingerprint: Uint8Array;
  seal: Uint8Array;
  fence: bigint;
  token: Uint8Array;
  leaseMs: number;
  retentionMs: bigint;
  createdUs: bigint;
  writtenUs: bigint;
  attempt: number;
  maxAttempts: number;
  secretId: number;
  environment: string;
  tenant: string;
  scope: string;
  hint: string;
  checkpoint: Uint8Array;
  answer: RecordAnswer | null;
}

const view = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

function joined(parts: Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** The one packed form of a record. */
export function pack(record: PackedRecord): Uint8Array {
  const texts = [record.environment, record.tenant, record.scope, record.hint];
  const label = joined(
    texts.map((text) => {
      const data = new TextEncoder().encode(text);
      return Uint8Array.of(data.length, ...data);
    }),
  );
  const header = new Uint8Array(HEADER);
  header.set([1, STATES.indexOf(record.state) + 1, CRASH.indexOf(record.crash) + 1]);
  header.set(record.fingerprint, 3);
  header.set(record.seal, 20);
  header.set(record.token, 44);
  const data = view(header);
  data.setBigUint64(36, record.fence, true);
  data.setUint32(60, record.leaseMs, true);
  data.setBigUint64(64, record.retentionMs, true);
  data.setBigUint64(72, record.createdUs, true);
  data.setBigUint64(80, record.writtenUs, true);
  data.setUint16(88, record.attempt, true);
  data.setUint16(90, record.maxAttempts, true);
  data.setUint16(92, record.secretId, true);
  data.setUint16(94, label.length, true);
  return joined([header, label, ...sectionsOf(record)]);
}

function sectionsOf(record: PackedRecord): Uint8Array[] {
  const out: Uint8Array[] = [];
  if (record.checkpoint.length > 0) out.push(section(CHECKPOINT, record.checkpoint));
  if (record.answer !== null) {
    out.push(section(HEAD, record.answer.head));
    if (record.answer.body !== null) out.push(section(BODY, record.answer.body));
    else {
      const size = new Uint8Array(8);
      view(size).setBigUint64(0, record.answer.omittedBytes ?? 0n, true);
      const { digest } = record.answer;
      out.push(digest === null ? section(OMITTED, size) : section(ELSEWHERE, joined([size, digest])));
    }
  }
  return out;
}

function section(tag: number, data: Uint8Array): Uint8Array {
  const head = new Uint8Array(5);
  head[0] = tag;
  view(head).setUint32(1, data.length, true);
  return joined([head, data]);
}

/** The record, or `RecordInvalid`; with a `seal`, that key's record and no other (P24). */
export function unpack(packed: Uint8Array, seal?: Uint8Array): PackedRecord {
  if (packed.length > 0 && packed[0] !== 1) throw new RecordInvalid("unknown_version");
  if (packed.length < HEADER) throw new RecordInvalid("malformed");
  const data = view(packed);
  const state = STATES[data.getUint8(1) - 1];
  const crash = CRASH[data.getUint8(2) - 1];
  if (state === undefined || crash === undefined) throw new RecordInvalid("malformed");
  const [labels, at] = labelsOf(packed, data.getUint16(94, true));
  const sections = readSections(packed, at);
  const answer = answerOf(sections);
  if ((state === "completed" || state === "failed") !== (answer !== null)) throw new RecordInvalid("malformed");
  const record: PackedRecord = {
    state,
    crash,
    fingerprint: packed.slice(3, 20),
    seal: packed.slice(20, 36),
    fence: data.getBigUint64(36, true),
    token: packed.slice(44, 60),
    leaseMs: data.getUint32(60, true),
    retentionMs: data.getBigUint64(64, true),
    createdUs: data.getBigUint64(72, true),
    writtenUs: data.getBigUint64(80, true),
    attempt: data.getUint16(88, true),
    maxAttempts: data.getUint16(90, true),
    secretId: data.getUint16(92, true),
    ...labels,
    checkpoint: sections.get(CHECKPOINT) ?? new Uint8Array(),
    answer,
  };
  if (seal !== undefined && !record.seal.every((byte, at) => byte === seal[at])) throw new RecordInvalid("foreign");
  return record;
}

type Labels = Pick<PackedRecord, "environment" | "tenant" | "scope" | "hint">;

function labelsOf(packed: Uint8Array, size: number): [Labels, number] {
  let at = HEADER;
  const texts = MOST_LABEL.map((most) => {
    const length = packed[at];
    if (length === undefined || length > most || at + 1 + length > packed.length) throw new RecordInvalid("malformed");
    const part = packed.subarray(at + 1, at + 1 + length);
    at += 1 + length;
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(part);
    } catch {
      throw new RecordInvalid("malformed");
    }
  });
  const [environment = "", tenant = "", scope = "", hint = ""] = texts;
  if (at - HEADER !== size || scope === "" || texts.some((text) => /\p{Cc}/u.test(text))) {
    throw new RecordInvalid("malformed");
  }
  return [{ environment, tenant, scope, hint }, at];
}

function readSections(packed: Uint8Array, from: number): Map<number, Uint8Array> {
  const found = new Map<number, Uint8Array>();
  const data = view(packed);
  let last = 0;
  for (let at = from; at < packed.length; ) {
    const tag = data.getUint8(at);
    if (tag <= last || at + 5 > packed.length) throw new RecordInvalid("malformed");
    const end = at + 5 + data.getUint32(at + 1, true);
    if (end > packed.length || (tag === CHECKPOINT && end === at + 5)) throw new RecordInvalid("malformed");
    if (tag > ELSEWHERE && tag < OPTIONAL) throw new RecordInvalid("unknown_section");
    found.set(tag, packed.slice(at + 5, end));
    [last, at] = [tag, end];
  }
  return found;
}

function answerOf(sections: Map<number, Uint8Array>): RecordAnswer | null {
  const head = sections.get(HEAD);
  const [body, omitted, elsewhere] = [sections.get(BODY), sections.get(OMITTED), sections.get(ELSEWHERE)];
  const there = [body, omitted, elsewhere].filter((found) => found !== undefined).length;
  if (head === undefined && there === 0) return null;
  if (head === undefined || there !== 1) throw new RecordInvalid("malformed");
  if (body !== undefined) return { head, body, omittedBytes: null, digest: null };
  const named = elsewhere ?? omitted ?? new Uint8Array();
  if (named.length !== (elsewhere === undefined ? 8 : 40)) throw new RecordInvalid("malformed");
  const digest = elsewhere === undefined ? null : named.slice(8);
  return { head, body: null, omittedBytes: view(named).getBigUint64(0, true), digest };
}
