/** Digests that are made here, by WebCrypto: no package is needed for them. */
import { canonicalOf, canonicalize } from "./canonical.js";
import { concat } from "./send.js";

/** One part of a request: its bytes as they are, or JSON by its meaning. */
export interface Part {
  kind: "raw" | "json";
  data: Uint8Array | string;
}

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

/** Bytes in hexadecimal digits. */
export const hexOf = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** 8 bytes, the lowest first. */
function sized(length: number): Uint8Array {
  const out = new Uint8Array(8);
  new DataView(out.buffer).setUint32(0, length, true);
  return out;
}

async function sha256(pieces: Uint8Array[]): Promise<string> {
  return hexOf(new Uint8Array(await crypto.subtle.digest("SHA-256", concat(pieces) as BufferSource)));
}

/** Of several parts: each with its kind and its length, so that no two lists of parts are the same bytes. */
export function digestOf(parts: Part[]): Promise<string> {
  const pieces = parts.flatMap(({ kind, data }) => {
    const json = kind === "json";
    const bytes = json ? utf8(canonicalize(data)) : typeof data === "string" ? utf8(data) : data;
    return [Uint8Array.of(Number(json)), sized(bytes.length), bytes];
  });
  return sha256(pieces);
}

/** The SHA-256 of a value's canonical JSON (RFC 8785), in hexadecimal digits, as a claim takes it. */
export async function fingerprintOf(value: unknown): Promise<string> {
  return sha256([utf8(canonicalOf(value))]);
}

/** The key under which a principal's `key` is claimed: keys of two principals never meet. */
export async function principalKey(principal: string, key: string): Promise<string> {
  const owner = utf8(principal);
  return `p-${await sha256([sized(owner.length), owner, utf8(key)])}`;
}
