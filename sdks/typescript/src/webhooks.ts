/** Webhooks: the provider's signature is checked, and each of its events is handled once. */
import { fromBase64 } from "./answer.js";
import { hexOf } from "./digest.js";
import { AnswerNotKept, EffectFailed, GaveUp, KeyInvalid, ProblemError, SemelError, Unrecorded } from "./errors.js";
import { checkKey } from "./keys.js";
import { merged } from "./merge.js";
import { concat } from "./send.js";
import type { Result, Semel, Terms } from "./worker.js";

/** The largest body that is read, unless the verifier says otherwise. */
export const MAX_BODY_BYTES = 1024 * 1024;
/** The longest signature header. */
const MAX_HEADER_LENGTH = 4096;
/** The most signatures in one header. */
const MAX_SIGNATURES = 16;
/** By how many seconds a signature's time may be off. */
const TOLERANCE = 300;
/** Providers deliver again for days. */
const RETENTION_MS = 7 * 86_400_000;

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

/** Why a webhook isn't believed. */
export type RefusedReason = "missing" | "malformed" | "signature" | "expired" | "too_large" | "no_id";

/**
 * A webhook that isn't believed, by its `reason`: a header is `missing` or `malformed`, the `signature` is wrong, its time is
 * too far off (`expired`), the body is `too_large`, or there is `no_id` of the event.
 */
export class WebhookRefused extends SemelError {
  /** What to answer. */
  readonly status: number;

  constructor(readonly reason: RefusedReason) {
    super(`the webhook is refused: ${reason}`);
    this.status = reason === "too_large" ? 413 : reason === "signature" || reason === "expired" ? 401 : 400;
  }
}

/** A webhook whose signature is right. */
export class WebhookEvent {
  // Private, so that printing the event doesn't print them.
  readonly #body: Uint8Array;
  readonly #headers: Headers;

  constructor(
    readonly provider: Provider,
    /** The same on each delivery. */
    readonly id: string,
    body: Uint8Array,
    headers: Headers,
  ) {
    this.#body = body;
    this.#headers = headers;
  }

  /** As it was signed. */
  get body(): Uint8Array {
    return this.#body;
  }

  /** The signature doesn't cover them, except for those that are part of it. */
  get headers(): Headers {
    return this.#headers;
  }

  /** The body, read as JSON. */
  json(): unknown {
    return JSON.parse(new TextDecoder().decode(this.#body));
  }

  /** Under which it is handled once. */
  async key(): Promise<string> {
    try {
      return checkKey(this.id);
    } catch (error) {
      if (error instanceof KeyInvalid) return `id-${await sha256(utf8(this.id))}`;
      throw error;
    }
  }
}

/** How a webhook is verified. */
export interface VerifierOptions {
  /** By how many seconds a signature's time may be off; 300 unless said. */
  tolerance?: number;
  /** The largest body, in bytes; 1 MiB unless said. */
  maxBody?: number;
  /** The clock, in milliseconds, for tests. */
  now?: () => number;
}

/** How an event is handled once. */
export interface HandleOptions extends Terms {
  semel: Semel;
  /** What is done; `webhook-` and the provider's name unless said. */
  scope?: string;
}

/** What a handler returns is the answer: nothing, a text, or JSON. */
export type Handle = (event: WebhookEvent) => unknown;

export type Provider = "stripe" | "github" | "shopify" | "slack" | "standard";
type Secrets = string | Uint8Array | (string | Uint8Array)[];
/** Headers as `fetch` or Node has them, or line by line. */
export type HeaderLines = Headers | Record<string, string | string[] | undefined> | [string, string][];

/** What a request says of its signature. */
interface Signed {
  /** What is signed in front of the body. */
  before: string;
  signatures: string[];
  seconds?: string;
}

/** What is particular to a provider. */
interface Preset {
  keyOf?: (secret: string) => Uint8Array;
  textOf: (digest: Uint8Array) => string;
  read: (lines: Lines) => Signed;
  id: (lines: Lines, body: Uint8Array) => string | undefined | Promise<string>;
}

/** Verifies the webhooks of one endpoint. */
export class Verifier {
  readonly provider: Provider;
  readonly maxBody: number;
  readonly #preset: Preset;
  readonly #keys: Promise<CryptoKey[]>;
  readonly #tolerance: number;
  readonly #now: () => number;

  /** All secrets count, so that one can be replaced by another: give the new and the old one. */
  constructor(provider: Provider, secrets: Secrets, options: VerifierOptions = {}) {
    const preset = PRESETS[provider];
    const given = Array.isArray(secrets) ? secrets : [secrets];
    const keys = given.map((secret) => (typeof secret === "string" ? (preset.keyOf ?? utf8)(secret) : secret));
    if (keys.length === 0 || keys.some((key) => key.length === 0)) throw new TypeError("a webhook needs a secret that isn't empty");
    const algorithm = { name: "HMAC", hash: "SHA-256" };
    this.#keys = Promise.all(keys.map((key) => crypto.subtle.importKey("raw", key as BufferSource, algorithm, false, ["sign"])));
    this.provider = provider;
    this.#preset = preset;
    this.#tolerance = options.tolerance ?? TOLERANCE;
    this.maxBody = options.maxBody ?? MAX_BODY_BYTES;
    this.#now = options.now ?? Date.now;
  }

  /** The event; throws `WebhookRefused`. `body` is the request's body as it came, before anything has read it. */
  async verify(headers: HeaderLines, body: Uint8Array | string): Promise<WebhookEvent> {
    const bytes = typeof body === "string" ? utf8(body) : body;
    if (bytes.length > this.maxBody) throw new WebhookRefused("too_large");
    const lines = new Lines(headers);
    const signed = this.#preset.read(lines);
    const count = signed.signatures.length;
    if (count === 0 || count > MAX_SIGNATURES) throw new WebhookRefused("malformed");
    if (!(await this.#isSigned(signed, bytes))) throw new WebhookRefused("signature");
    const off = signed.seconds === undefined ? 0 : Math.abs(this.#now() / 1000 - Number(signed.seconds));
    if (off > this.#tolerance) throw new WebhookRefused("expired");
    const id = await this.#preset.id(lines, bytes);
    if (!id) throw new WebhookRefused("no_id");
    return new WebhookEvent(this.provider, id, bytes, lines.all());
  }

  /**
   * Verifies it, and handles each event once: a repeated delivery gets the first result. A handler that throws leaves the
   * event to the next delivery, unless the terms say otherwise.
   */
  async run(headers: HeaderLines, body: Uint8Array | string, options: HandleOptions, handle: Handle): Promise<Result<unknown>> {
    const event = await this.verify(headers, body);
    const { semel, scope, ...own } = options;
    const terms = merged<Terms>({ retentionMs: RETENTION_MS }, semel.terms, own);
    return semel.run<unknown>({ ...terms, scope: scope ?? `webhook-${this.provider}`, key: await event.key() }, () => handle(event));
  }

  /** A handler from `Request` to `Response`: Next.js, SvelteKit, Hono, Bun, Deno, Workers. */
  web(options: HandleOptions, handle: Handle): (request: Request) => Promise<Response> {
    return async (request) => {
      if (request.method !== "POST") return new Response("a webhook is a POST", { status: 405, headers: { allow: "POST" } });
      try {
        return responseOf((await this.run(request.headers, await bodyOf(request, this.maxBody), options, handle)).value);
      } catch (error) {
        return responseOfError(error);
      }
    };
  }

  /** Compares all signatures with those of all secrets, in a time that tells nothing of them. */
  async #isSigned(signed: Signed, body: Uint8Array): Promise<boolean> {
    const content = concat([utf8(signed.before), body]);
    let found = false;
    for (const key of await this.#keys) {
      const digest = new Uint8Array(await crypto.subtle.sign("HMAC", key, content as BufferSource));
      const own = utf8(this.#preset.textOf(digest));
      for (const signature of signed.signatures) found = isEqual(own, utf8(signature)) || found;
    }
    return found;
  }
}

/** `Stripe-Signature`; the event's `id`. */
export const stripe = (secrets: Secrets, options?: VerifierOptions): Verifier => new Verifier("stripe", secrets, options);
/** `X-Hub-Signature-256`; `X-GitHub-Delivery`, which isn't signed. */
export const github = (secrets: Secrets, options?: VerifierOptions): Verifier => new Verifier("github", secrets, options);
/** `X-Shopify-Hmac-SHA256`; `X-Shopify-Webhook-Id`, which isn't signed. */
export const shopify = (secrets: Secrets, options?: VerifierOptions): Verifier => new Verifier("shopify", secrets, options);
/** `X-Slack-Signature`; the event's `event_id`, and a digest of the body for what has none, such as commands. */
export const slack = (secrets: Secrets, options?: VerifierOptions): Verifier => new Verifier("slack", secrets, options);
/** `webhook-signature` and `webhook-id`, as many providers send them (Standard Webhooks). */
export const standard = (secrets: Secrets, options?: VerifierOptions): Verifier => new Verifier("standard", secrets, options);

const base64Of = (bytes: Uint8Array): string => btoa(String.fromCharCode(...bytes));

const PRESETS: Record<Provider, Preset> = {
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
class Lines {
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

async function sha256(bytes: Uint8Array): Promise<string> {
  return hexOf(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as BufferSource)));
}

function isEqual(own: Uint8Array, given: Uint8Array): boolean {
  let differs = own.length ^ given.length;
  for (const [at, byte] of own.entries()) differs |= byte ^ (given[at] ?? 0);
  return differs === 0;
}

/** The body, as far as it may be read. */
async function bodyOf(request: Request, most: number): Promise<Uint8Array> {
  const reader = request.body?.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (let next = await reader?.read(); next && !next.done; next = await reader?.read()) {
    size += next.value.length;
    if (size > most) {
      void reader?.cancel().catch(() => undefined);
      throw new WebhookRefused("too_large");
    }
    chunks.push(next.value);
  }
  return concat(chunks);
}

/** What a handler's result is as an answer. */
export function responseOf(value: unknown): Response {
  if (value === undefined || value === null) return new Response(null, { status: 200 });
  return typeof value === "string" ? new Response(value) : Response.json(value);
}

/** What is answered where there is no result: what isn't 2xx is delivered again. Throws what is the handler's own. */
export function responseOfError(error: unknown): Response {
  if (error instanceof WebhookRefused) return new Response(error.message, { status: error.status });
  // It was handled, or no further delivery would change that it can't be.
  if (error instanceof EffectFailed || error instanceof AnswerNotKept || error instanceof Unrecorded) return responseOf(undefined);
  const problem = error instanceof ProblemError || error instanceof GaveUp ? error.problem : undefined;
  if (problem?.code?.startsWith("idempotency_") && problem.status !== undefined) {
    return Response.json(problem, { status: problem.status, headers: { "content-type": "application/problem+json" } });
  }
  if (error instanceof GaveUp) return new Response("try again later", { status: 503, headers: { "retry-after": "1" } });
  throw error;
}
