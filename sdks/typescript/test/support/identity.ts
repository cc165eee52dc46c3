/** Digests that every language computes alike: fingerprints (P3), identities (P2), downstream keys (P42). */
import { blake3 } from "@noble/hashes/blake3.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import { canonicalOf, canonicalize } from "../../src/canonical.js";

const CONTEXTS = {
  identity: "semel v1 identity",
  fingerprint: "semel v1 fingerprint",
  downstream: "semel v1 downstream key",
} as const;

const NONE = new Uint8Array();

/** One part of a payload: its bytes as they are, or JSON by its meaning. */
export interface Part {
  kind: "raw" | "json";
  data: Uint8Array | string;
}

const bytes = (data: Uint8Array | string): Uint8Array => (typeof data === "string" ? utf8ToBytes(data) : data);

function hasher(use: keyof typeof CONTEXTS, material: Uint8Array): ReturnType<typeof blake3.create> {
  const key = blake3(material, { context: utf8ToBytes(CONTEXTS[use]) });
  return blake3.create({ key });
}

function length(of: Uint8Array, size: 4 | 8): Uint8Array {
  const out = new Uint8Array(size);
  new DataView(out.buffer).setUint32(0, of.length, true);
  return out;
}

/** Rule P3: a version byte and 16 bytes. `PayloadInvalid` where a JSON part can't be compared. */
export function fingerprint(parts: Iterable<Part>, material: Uint8Array = NONE): Uint8Array {
  const hash = hasher("fingerprint", material);
  for (const part of parts) {
    const json = part.kind === "json";
    const data = json ? utf8ToBytes(canonicalize(part.data)) : bytes(part.data);
    hash.update(Uint8Array.of(Number(json))).update(length(data, 8)).update(data);
  }
  return Uint8Array.of(1, ...hash.digest().subarray(0, 16));
}

/** The fingerprint of one JSON value, in hexadecimal digits, as a claim takes it. */
export function fingerprintOf(value: unknown, material: Uint8Array = NONE): string {
  return bytesToHex(fingerprint([{ kind: "json", data: canonicalOf(value) }], material));
}

function shortParts(use: keyof typeof CONTEXTS, material: Uint8Array, parts: Uint8Array[]): Uint8Array {
  const hash = hasher(use, material);
  for (const part of parts) hash.update(length(part, 4)).update(part);
  return hash.digest();
}

/** What a key's identity is made of. */
export interface Named {
  environment?: string;
  tenant?: string;
  scope?: string;
  principal?: string;
  key: string;
}

/** Rule P2: 32 bytes; the first 16 are the address, the last 16 the seal. */
export function identity(named: Named, material: Uint8Array = NONE): Uint8Array {
  const texts = [named.environment ?? "", named.tenant ?? "", named.scope ?? "", named.key];
  if (named.principal) texts.push(named.principal);
  return shortParts("identity", material, texts.map(utf8ToBytes));
}

/** Rule P42: the key to pass on to a system further down the road. */
export function downstreamKey(of: Uint8Array, step: string, material: Uint8Array = NONE): string {
  return `semel-${bytesToHex(shortParts("downstream", material, [of, utf8ToBytes(step)]).subarray(0, 16))}`;
}
