/** How providers sign their webhooks, and name their events. */
import { fromBase64 } from "./answer.js";
import { hexOf } from "./digest.js";
import { WebhookRefused } from "./webhook-answers.js";

/** The longest signature header. */
const MAX_HEADER_LENGTH = 4096;

export const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

export type Provider = "stripe" | "github" | "shopify" | "slack" | "standard";
/** Headers as `fetch` or Node has them, or line by line. */
export type HeaderLines = Headers | Record<string, string | string[] | undefined> | [string, string][];

/** What a request says of its signature. */
export interface Signed {
  /** What is signed in front of the body. */
  before: string;
  signatures: string[];
  seconds?: string;
}

/** What is particular to a provider. */
export interface Preset {
  keyOf?: (secret: string) => Uint8Array;
  textOf: (digest: Uint8Array) => string;
  read: (lines: Lines) => Signed;
  id: (lines: Lines, body: Uint8Array) => string | undefined | Promise<string>;
}

const base64Of = (bytes: Uint8Array): string => btoa(String.fromCharCode(...bytes));

/** The providers. */
export const PRESETS: Record<Provider, Preset> = {
  stripe: {
    textOf: hexOf,
    read: (lines) => {
      const items = lines.one("stripe-signature").split(",").map((item) => cut(item.trim(), "="));
      const times = items.filter(([name]) => name === "t");
      if (times.length !== 1) throw new WebhookRefused("malformed");
      const seconds = secondsOf(times[0]?.[1] ?? "");
      return { before: `${seconds}.`, signatures: items.filter(([name]) => name === "v1").map(([, value]) => value), seconds };
    },
    id: (_, body) => member(body, "id"),
  },
  github: {
    textOf: hexOf,
    read: (lines) => ({ before: "", signatures: [after("sha256=", lines.one("x-hub-signature-256"))] }),
    id: (lines) => lines.maybe("x-github-delivery"),
  },
  shopify: {
    textOf: base64Of,
    read: (lines) => ({ before: "", signatures: [lines.one("x-shopify-hmac-sha256")] }),
    id: (lines) => lines.maybe("x-shopify-webhook-id"),
  },
  slack: {
    textOf: hexOf,
    read: (lines) => {
      const seconds = secondsOf(lines.one("x-slack-request-timestamp"));
      return { before: `v0:${seconds}:`, signatures: [after("v0=", lines.one("x-slack-signature"))], seconds };
    },
    id: async (_, body) => member(body, "event_id") ?? `body-${await sha256(body)}`,
  },
  standard: {
    keyOf: (secret) => {
      try {
        return fromBase64(secret.replace(/^whsec_/, ""));
      } catch {
        throw new TypeError("the secret is no base64");
      }
    },
    textOf: base64Of,
    read: (lines) => {
      const [id, seconds] = [lines.one("webhook-id"), secondsOf(lines.one("webhook-timestamp"))];
      if (id === "") throw new WebhookRefused("malformed");
      const items = lines.one("webhook-signature").split(" ").map((item) => cut(item, ","));
      return { before: `${id}.${seconds}.`, signatures: items.filter(([name]) => name === "v1").map(([, value]) => value), seconds };
    },
    id: (lines) => lines.one("webhook-id"),
  },
};

/** Headers by name. */
export class Lines {
  readonly #lines = new Map<string, string[]>();

  constructor(headers: HeaderLines) {
    const pairs = headers instanceof Headers || Array.isArray(headers) ? [...headers] : Object.entries(headers);
    for (const [name, value] of pairs) {
      if (value === undefined) continue;
      const known = this.#lines.get(name.toLowerCase()) ?? [];
      this.#lines.set(name.toLowerCase(), known.concat(value));
    }
  }

  /** The value of a header that is there once. */
  one(name: string): string {
    const found = this.#lines.get(name);
    if (!found) throw new WebhookRefused("missing");
    const [only = ""] = found;
    if (found.length > 1 || only.length > MAX_HEADER_LENGTH) throw new WebhookRefused("malformed");
    return only;
  }

  maybe(name: string): string | undefined {
    return this.#lines.has(name) ? this.one(name) : undefined;
  }

  all(): Headers {
    return new Headers([...this.#lines].flatMap(([name, values]) => values.map((value): [string, string] => [name, value])));
  }
}

function secondsOf(text: string): string {
  if (!/^[0-9]{1,12}$/.test(text)) throw new WebhookRefused("malformed");
  return text;
}

function after(prefix: string, text: string): string {
  if (!text.startsWith(prefix)) throw new WebhookRefused("malformed");
  return text.slice(prefix.length);
}

function cut(text: string, at: string): [before: string, after: string] {
  const found = text.indexOf(at);
  return found < 0 ? [text, ""] : [text.slice(0, found), text.slice(found + 1)];
}

/** A text in a JSON object. */
function member(body: Uint8Array, name: string): string | undefined {
  try {
    const found = (JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body)) as Record<string, unknown> | null)?.[name];
    return typeof found === "string" ? found : undefined;
  } catch {
    return undefined;
  }
}

/** In hexadecimal digits. */
export async function sha256(bytes: Uint8Array): Promise<string> {
  return hexOf(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as BufferSource)));
}
