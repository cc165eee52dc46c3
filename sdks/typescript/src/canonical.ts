/**
 * Canonical JSON (RFC 8785), strict: two texts with one meaning become the same bytes. What could be read in two ways is
 * refused: a member name given twice, a number that a double can't hold exactly, more than 64 levels, and whatever isn't JSON.
 */
import { PayloadInvalid } from "./errors.js";

const MAX_DEPTH = 64;
const SPACE = /[ \t\r\n]*/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y; // eslint-disable-line no-control-regex
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const WORD = /true|false|null/y;
const LONE_SURROGATE = /\p{Surrogate}/u;

/** Reads one JSON text from its beginning, writing the canonical form as it goes. */
class Reader {
  at = 0;

  constructor(readonly text: string) {}

  space(): void {
    SPACE.lastIndex = this.at;
    SPACE.test(this.text);
    this.at = SPACE.lastIndex;
  }

  take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0];
    if (found !== undefined) this.at += found.length;
    return found;
  }

  skip(character: string): boolean {
    if (this.text[this.at] !== character) return false;
    this.at += 1;
    return true;
  }

  value(depth: number): string {
    const next = this.text[this.at];
    if (next === "{") return this.object(depth + 1);
    if (next === "[") return this.array(depth + 1);
    if (next === '"') return JSON.stringify(this.string());
    const word = this.take(WORD);
    return word ?? this.number();
  }

  string(): string {
    const found = this.take(STRING);
    if (found === undefined) throw new PayloadInvalid("syntax");
    const value = JSON.parse(found) as string;
    if (LONE_SURROGATE.test(value)) throw new PayloadInvalid("syntax");
    return value;
  }

  number(): string {
    const found = this.take(NUMBER);
    if (found === undefined) throw new PayloadInvalid("syntax");
    const value = Number(found);
    const text = value === 0 ? "0" : String(value);
    // What a double can't hold, another reader may: 0.1 and 0.1000000000000000055 are two payloads to it.
    const isExact = Math.abs(value) <= Number.MAX_SAFE_INTEGER && decimal(found) === decimal(text);
    if (!isExact) throw new PayloadInvalid("number");
    return text;
  }

  array(depth: number): string {
    this.deeper(depth);
    const items: string[] = [];
    if (!this.skip("]")) {
      do {
        this.space();
        items.push(this.value(depth));
        this.space();
      } while (this.skip(","));
      if (!this.skip("]")) throw new PayloadInvalid("syntax");
    }
    return `[${items.join(",")}]`;
  }

  object(depth: number): string {
    this.deeper(depth);
    const members = new Map<string, string>();
    if (!this.skip("}")) {
      do {
        const name = this.name();
        if (members.has(name)) throw new PayloadInvalid("duplicate");
        members.set(name, this.value(depth));
        this.space();
      } while (this.skip(","));
      if (!this.skip("}")) throw new PayloadInvalid("syntax");
    }
    // Strings of this language are compared by UTF-16 code units, which is the order asked for.
    const sorted = [...members].sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${sorted.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(",")}}`;
  }

  name(): string {
    this.space();
    const name = this.string();
    this.space();
    if (!this.skip(":")) throw new PayloadInvalid("syntax");
    this.space();
    return name;
  }

  deeper(depth: number): void {
    if (depth > MAX_DEPTH) throw new PayloadInvalid("depth");
    this.at += 1;
    this.space();
  }
}

const PARTS = /^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$/;

/** A number by its sign, its digits without zeros at either end, and the power of ten of the last of them. */
function decimal(text: string): string {
  const [, sign = "", whole = "", fraction = "", power = "0"] = PARTS.exec(text) ?? [];
  const digits = (whole + fraction).replace(/^0+/, "");
  const ones = digits.replace(/0+$/, "");
  if (ones === "") return "0";
  return `${sign}${ones}e${Number(power) - fraction.length + digits.length - ones.length}`;
}

function decoded(text: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(text);
  } catch {
    throw new PayloadInvalid("syntax");
  }
}

/** The canonical form of a JSON text, or `PayloadInvalid`. */
export function canonicalize(text: string | Uint8Array): string {
  const reader = new Reader(typeof text === "string" ? text : decoded(text));
  reader.space();
  const canonical = reader.value(0);
  reader.space();
  if (reader.at !== reader.text.length) throw new PayloadInvalid("syntax");
  return canonical;
}

/** A value as JSON; undefined where it has no such form, as a function. `JSON.stringify` would make null of `NaN`. */
export function jsonText(value: unknown): string | undefined {
  return JSON.stringify(value, (_, part: unknown) => {
    if (typeof part === "number" && !Number.isFinite(part)) throw new PayloadInvalid("number");
    return part;
  });
}

/** The canonical form of a value: what `JSON.stringify` takes. */
export function canonicalOf(value: unknown): string {
  const text = jsonText(value);
  if (text === undefined) throw new PayloadInvalid("syntax");
  return canonicalize(text);
}

/** The text of the value at `path` inside a JSON object, as it was written, or nothing. */
export function memberText(text: string, path: readonly string[]): string | undefined {
  const reader = new Reader(text);
  reader.space();
  let found: [number, number] = [reader.at, text.length];
  for (const wanted of path) {
    reader.at = found[0];
    const span = member(reader, wanted);
    if (span === undefined) return undefined;
    found = span;
  }
  return text.slice(...found);
}

function member(reader: Reader, wanted: string): [number, number] | undefined {
  if (!reader.skip("{")) return undefined;
  reader.space();
  if (reader.skip("}")) return undefined;
  do {
    const name = reader.name();
    const start = reader.at;
    skipValue(reader);
    if (name === wanted) return [start, reader.at];
    reader.space();
  } while (reader.skip(","));
  return undefined;
}

/** Steps over a value without judging its numbers: answers of others may have any. */
function skipValue(reader: Reader): void {
  let depth = 0;
  do {
    reader.space();
    const next = reader.text[reader.at];
    if (next === undefined) throw new PayloadInvalid("syntax");
    if (next === '"') reader.take(STRING);
    else {
      if (next === "{" || next === "[") depth += 1;
      if (next === "}" || next === "]") depth -= 1;
      if (reader.take(WORD) === undefined && reader.take(NUMBER) === undefined) reader.at += 1;
    }
  } while (depth > 0);
}
