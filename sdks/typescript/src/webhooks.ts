/** Webhooks: the provider's signature is checked, and each of its events is handled once. */
import { KeyInvalid } from "./errors.js";
import { checkKey } from "./keys.js";
import { merged } from "./merge.js";
import { concat } from "./send.js";
import { WebhookRefused, answered } from "./webhook-answers.js";
import { type HeaderLines, Lines, PRESETS, type Preset, type Provider, type Signed, sha256, utf8 } from "./webhook-presets.js";
import type { Result, Semel, Terms } from "./worker.js";

export { type RefusedReason, WebhookRefused } from "./webhook-answers.js";
export type { HeaderLines, Provider } from "./webhook-presets.js";

/** The largest body that is read, unless the verifier says otherwise. */
const MAX_BODY_BYTES = 1024 * 1024;
/** The most signatures in one header. */
const MAX_SIGNATURES = 16;
/** By how many seconds a signature's time may be off. */
const TOLERANCE = 300;
/** Providers deliver again for days. */
const RETENTION_MS = 7 * 86_400_000;

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

type Secrets = string | Uint8Array | (string | Uint8Array)[];

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
      return answered(handle, async (watched) => this.run(request.headers, await bodyOf(request, this.maxBody), options, watched));
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
