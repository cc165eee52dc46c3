/** A client that asks until there is an answer, always with the key it began with. */
import { type Answer, answerOf } from "./answer.js";
import { jsonText } from "./canonical.js";
import { SemelError } from "./errors.js";
import { checkKey, newKey } from "./keys.js";
import { merged } from "./merge.js";
import type { Entry, Outbox, StoredRequest } from "./outbox.js";
import { Course, DEFAULT_RETRY, RetryBudget, type RetryPolicy } from "./retry.js";
import { type Fetch, type Outgoing, send } from "./send.js";
import { type Query, checkBase, isWhole, joined, withQuery } from "./url.js";

/** How a client is set up. */
export interface ClientOptions {
  /** Put before paths that aren't whole URLs. */
  baseUrl?: string;
  /** With every request: credentials and the like. */
  headers?: Record<string, string>;
  retry?: Partial<RetryPolicy>;
  budget?: RetryBudget;
  /** From `@semel/client/outbox`: for callers that may crash. */
  outbox?: Outbox;
  fetch?: Fetch;
}

/** What a request may carry besides its method and URL. */
export interface RequestOptions {
  json?: unknown;
  body?: string | Uint8Array;
  /** Goes after the `?` of the URL. */
  query?: Query;
  contentType?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** With a key of your own, where the operation has one. */
export interface KeyedOptions extends RequestOptions {
  key?: string;
}

/** Methods that change nothing. They need no key. */
const SAFE = new Set(["GET", "HEAD", "OPTIONS"]);

function stored(method: string, url: string, options: RequestOptions): StoredRequest {
  if (options.json !== undefined && options.body !== undefined) throw new TypeError("either json or body");
  const json = options.json !== undefined;
  const text = json ? jsonText(options.json) : (options.body ?? "");
  if (text === undefined) throw new TypeError("json has no JSON form");
  const body = typeof text === "string" ? new TextEncoder().encode(text) : text;
  return { method: method.toUpperCase(), url: withQuery(url, options.query), contentType: options.contentType ?? (json ? "application/json" : null), body };
}

/** One may be shared by a whole process, so that its retry budget is. */
export class Client {
  readonly retry: RetryPolicy;
  readonly budget: RetryBudget;
  readonly #options: ClientOptions;
  readonly #fetch: Fetch;
  readonly #base: string;

  constructor(options: ClientOptions = {}) {
    this.#options = options;
    this.#base = checkBase(options.baseUrl ?? "");
    this.retry = merged<RetryPolicy>(DEFAULT_RETRY, options.retry);
    this.budget = options.budget ?? new RetryBudget();
    this.#fetch = options.fetch ?? ((url, init) => fetch(url, init));
  }

  /**
   * Asks until there is an answer. The key is made here, once, unless the operation has one of its own; GET, HEAD and
   * OPTIONS change nothing and have none. Throws `Conflict` and `InDoubt`, which are never retried; other `ProblemError`s where Semel refused; `GaveUp`.
   */
  async request(method: string, url: string, options: KeyedOptions = {}): Promise<Answer> {
    const made = SAFE.has(method.toUpperCase()) ? undefined : newKey();
    const key = options.key === undefined ? made : checkKey(options.key);
    return this.#send(key, stored(method, url, options), options);
  }

  /** `request` with GET: sent again like the others, and without a key. */
  get(url: string, options: RequestOptions = {}): Promise<Answer> {
    return this.request("GET", url, options);
  }

  /** `request` with POST. */
  post(url: string, options: KeyedOptions = {}): Promise<Answer> {
    return this.request("POST", url, options);
  }

  /** `request` with PUT. */
  put(url: string, options: KeyedOptions = {}): Promise<Answer> {
    return this.request("PUT", url, options);
  }

  /** `request` with PATCH. */
  patch(url: string, options: KeyedOptions = {}): Promise<Answer> {
    return this.request("PATCH", url, options);
  }

  /** `request` with DELETE. */
  delete(url: string, options: KeyedOptions = {}): Promise<Answer> {
    return this.request("DELETE", url, options);
  }

  /**
   * A call whose key is on disk before anything is sent. Once `work` has ended, the call is done and forgotten: keep the
   * answer inside it. If it throws, or the process dies, the next one that opens the same name asks with the same key.
   */
  async call<T>(name: string, work: (call: Call) => Promise<T>): Promise<T> {
    return this.#within(await this.outbox.begin(name), work);
  }

  /** Gives `work` every call that nobody has finished, the oldest first. */
  async resume(work: (call: Call) => Promise<void>): Promise<void> {
    for (const entry of await this.outbox.pending()) await this.#within(entry, work);
  }

  /** The outbox that was given. */
  get outbox(): Outbox {
    if (!this.#options.outbox) throw new SemelError("this client has no outbox: new Client({ outbox: await Outbox.open(…) })");
    return this.#options.outbox;
  }

  async #within<T>(entry: Entry, work: (call: Call) => Promise<T>): Promise<T> {
    const call = new Call(this.outbox, entry, {
      send: (kept, request, options) => this.#send(kept.key, request, options, kept.maybeSent),
      whole: (url) => this.#whole(url),
    });
    const value = await work(call);
    await call.forget();
    return value;
  }

  #whole(url: string): string {
    return joined(this.#base, url);
  }

  async #send(key: string | undefined, request: StoredRequest, options: RequestOptions, maybeSent = false): Promise<Answer> {
    const { headers = {} } = this.#options;
    const outgoing: Outgoing = {
      method: request.method,
      url: this.#whole(request.url),
      headers: {
        ...headers,
        ...options.headers,
        ...(request.contentType === null ? {} : { "Content-Type": request.contentType }),
        ...(key === undefined ? {} : { "Idempotency-Key": key }),
      },
      body: request.body.length > 0 ? request.body : undefined,
    };
    const course = new Course(this.retry, this.budget, key, undefined, SAFE.has(request.method));
    course.unknown = maybeSent;
    const reply = await send(this.#fetch, () => outgoing, course, options.signal);
    return answerOf(reply, key, reply.attempts);
  }
}

/** What a call needs of its client. */
interface Way {
  send: (entry: Entry, request: StoredRequest, options: RequestOptions) => Promise<Answer>;
  /** The URL with the client's base before it. */
  whole: (url: string) => string;
}

/** One call of an outbox. */
export class Call {
  readonly #outbox: Outbox;
  readonly #way: Way;
  #entry: Entry;

  constructor(outbox: Outbox, entry: Entry, way: Way) {
    this.#outbox = outbox;
    this.#entry = entry;
    this.#way = way;
  }

  /** Its name. */
  get name(): string {
    return this.#entry.name;
  }

  /** Its key, the same in every process. */
  get key(): string {
    return this.#entry.key;
  }

  /** Whether there is a request to send again. */
  get sent(): boolean {
    return this.#entry.request !== undefined;
  }

  /** Keeps the request, then asks until there is an answer. */
  async request(method: string, url: string, options: RequestOptions = {}): Promise<Answer> {
    this.#entry = await this.#outbox.attach(this.#entry, stored(method, this.#toKeep(url), options));
    return this.send(options);
  }

  /** Whole, as a process that finishes the call may have no base; but what was kept as a path stays the same request. */
  #toKeep(url: string): string {
    const before = this.#entry.request?.url;
    const whole = this.#way.whole(url);
    return (before === undefined || isWhole(before)) && isWhole(whole) ? whole : url;
  }

  /** `request` with POST. */
  post(url: string, options: RequestOptions = {}): Promise<Answer> {
    return this.request("POST", url, options);
  }

  /** Sends the request that was kept. */
  async send(options: Pick<RequestOptions, "headers" | "signal"> = {}): Promise<Answer> {
    const entry = this.#entry;
    if (!entry.request) throw new SemelError("this call was begun, and never sent anything; make its request anew, or forget it");
    this.#entry = { ...entry, maybeSent: true };
    return this.#way.send(entry, entry.request, options);
  }

  /** Takes it out of the outbox, answered or not; unless another has gone on with it since it was read. */
  forget(): Promise<void> {
    return this.#outbox.forget(this.#entry);
  }
}
