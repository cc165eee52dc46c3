/** Keys: made once, before the first attempt, and kept for all of them (rule P1). */
import { KeyInvalid } from "./errors.js";

/** The longest key, unless the server's rules say otherwise. */
export const MAX_BYTES = 255;
const LONGEST = 1024;

/** A random UUID, also on pages without HTTPS: `crypto.randomUUID` is not there. */
function randomUuid(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const at = (index: number) => bytes[index] ?? 0;
  bytes[6] = (at(6) & 0x0f) | 0x40;
  bytes[8] = (at(8) & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** A key for a new operation. Make it when the operation begins, keep it for every retry. */
export function newKey(prefix = "idem_"): string {
  return checkKey(prefix + randomUuid());
}

/** The same text, or `KeyInvalid`: looked at in the order empty, too long, characters. */
export function checkKey(text: string, maxBytes = MAX_BYTES, extra = ":"): string {
  const size = new TextEncoder().encode(text).length;
  if (size === 0) throw new KeyInvalid("empty");
  if (size > Math.min(maxBytes, LONGEST)) throw new KeyInvalid("too_long");
  for (const character of text) {
    if (!/^[A-Za-z0-9_.-]$/.test(character) && !extra.includes(character)) throw new KeyInvalid("character");
  }
  return text;
}

/**
 * The key in the lines of an `Idempotency-Key` header: one line, quoted (a structured field) or bare. Two lines could be
 * read in two ways, and are refused.
 */
export function keyOfHeader(lines: readonly string[]): string | undefined {
  const [first] = lines;
  if (first === undefined) return undefined;
  if (lines.length > 1) throw new KeyInvalid("character");
  const line = first.replace(/^[ \t]+|[ \t]+$/g, "");
  if (!line.startsWith('"')) return checkKey(line);
  const quoted = /^"((?:[ !#-[\]-~]|\\["\\])*)"$/.exec(line);
  if (quoted?.[1] === undefined) throw new KeyInvalid("character");
  return checkKey(quoted[1].replace(/\\(.)/g, "$1"));
}
