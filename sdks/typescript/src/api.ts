/** The protocol API, call by call. Most programs want `Semel`, which is made of these. */
import { keepBytes, problemError } from "./answer.js";
import type {
  AnswerInput,
  ClaimRequest,
  ClaimView,
  KeysView,
  LookupRequest,
  Outcome,
  RenewRequest,
  RenewView,
  SettleRequest,
  SettleView,
} from "./api-types.js";
import { jsonText } from "./canonical.js";
import { LeaseLost, ProblemError } from "./errors.js";
import { merged } from "./merge.js";
import { Course, DEFAULT_RETRY, type Received, RetryBudget, type RetryPolicy, problemOf, textOf } from "./retry.js";
import { type Fetch, type Reply, attempt, repeat } from "./send.js";

/** How the API is reached. */
export interface ApiOptions {
  /** Such as `http://127.0.0.1:8080/_semel`. */
  url: string;
  token?: string;
  retry?: Partial<RetryPolicy>;
  budget?: RetryBudget;
  fetch?: Fetch;
  /** In place of HTTP: a store that `open` has opened. */
  transport?: Transport;
}

/** What carries requests to the API, one attempt at a time. */
export interface Transport {
  /** Gets an answer within `limit` milliseconds, or throws. `path` begins with `/v1/`; `body` is JSON. */
  ask(method: string, path: string, body: string | undefined, limit: number, signal?: AbortSignal): Promise<Received>;
  /** Ends what is under way. */
  close?(): Promise<void>;
}

/** What names an owner. */
export interface Owner {
  id: string;
  token: string;
  fence: number;
}

/** An answer, and the moment that its deadline counts from, by `performance.now()`. */
export type Timed<T> = T & { countsFrom: number };

function read(reply: Reply): unknown {
  if (reply.status >= 300) throw problemError(reply);
  try {
    return JSON.parse(textOf(reply));
  } catch (cause) {
    throw new ProblemError(reply.status, { detail: "the answer is no JSON: is the URL that of the API?" }, { cause });
  }
}

function viewOf(reply: Reply): ClaimView {
  const view = read(reply) as ClaimView;
  keepBytes(view, textOf(reply));
  return view;
}

/** A token goes to another machine encrypted, or not at all. Whoever brings a `fetch` of their own decides themselves. */
function checkWay(url: string): void {
  const { protocol, hostname } = new URL(url);
  const isLocal = hostname === "localhost" || hostname === "[::1]" || /^127(\.\d+){3}$/.test(hostname);
  if (protocol === "http:" && !isLocal) {
    throw new TypeError(`the token would go to ${hostname} in the clear: use https://, or give a fetch of your own`);
  }
}

function overHttp(options: ApiOptions): Transport {
  if (options.token !== undefined && options.fetch === undefined) checkWay(options.url);
  const base = options.url.replace(/\/$/, "");
  const plain: Record<string, string> = options.token === undefined ? {} : { Authorization: `Bearer ${options.token}` };
  const withBody = { ...plain, "Content-Type": "application/json" };
  const given = options.fetch ?? ((url, init) => fetch(url, init));
  return {
    ask: (method, path, body, limit, signal) =>
      attempt(given, { method, url: base + path, headers: body === undefined ? plain : withBody, body }, limit, signal),
  };
}

/** One for a process. */
export class Api {
  readonly retry: RetryPolicy;
  readonly budget: RetryBudget;
  readonly #transport: Transport;

  constructor(options: ApiOptions) {
    this.#transport = options.transport ?? overHttp(options);
    this.retry = merged<RetryPolicy>(DEFAULT_RETRY, options.retry);
    this.budget = options.budget ?? new RetryBudget();
  }

  /** Closes the store in this process. Over HTTP there is nothing to close. */
  async close(): Promise<void> {
    await this.#transport.close?.();
  }

  /** Asks to be the one who runs. */
  async claim(request: ClaimRequest, signal?: AbortSignal, within?: number): Promise<Timed<ClaimView>> {
    // The server may look before it writes where it knows that this was asked before.
    const body = (attempt: number) => (attempt > 1 ? { ...request, retry: true } : request);
    const reply = await this.send("POST", "/v1/claims", body, within, signal);
    const view = viewOf(reply);
    // P30: an attempt without an answer may have won, and the one that was answered was then told of that lease (P6).
    const countsFrom = reply.attempts > 1 ? reply.firstSentAt : reply.sentAt + view.took_ms;
    return { ...view, countsFrom };
  }

  /** Keeps the lease, and a checkpoint with it. `LeaseLost` where it is another's. */
  async renew(owner: Owner, checkpoint?: unknown, within?: number): Promise<Timed<RenewView>> {
    const body: RenewRequest = { token: owner.token, fence: owner.fence };
    if (checkpoint !== undefined) body.checkpoint = checkpoint;
    const reply = await this.send("POST", `/v1/claims/${owner.id}/renew`, () => body, within);
    if (reply.status === 409 && problemOf(reply).code === "idempotency_lease_not_held") {
      throw new LeaseLost("the lease is another's");
    }
    const view = read(reply) as RenewView;
    // Unlike a claim, a renewal that is sent again gives the full span anew (P14).
    return { ...view, countsFrom: reply.sentAt + view.took_ms };
  }

  /** Says what became of the work. A `ProblemError` `idempotency_lease_not_held` where the lease was another's. */
  async settle(owner: Owner, outcome: Outcome, answer?: AnswerInput, within?: number): Promise<SettleView> {
    const body: SettleRequest = { token: owner.token, fence: owner.fence, outcome };
    if (answer !== undefined) body.answer = answer;
    return read(await this.send("POST", `/v1/claims/${owner.id}/settle`, () => body, within)) as SettleView;
  }

  /** Where a claim stands; waits for its end up to `waitMs`. */
  async look(id: string, waitMs?: number): Promise<ClaimView | undefined> {
    const query = waitMs === undefined ? "" : `?wait_ms=${waitMs}`;
    const reply = await this.send("GET", `/v1/claims/${id}${query}`);
    return reply.status === 404 ? undefined : viewOf(reply);
  }

  /** The same, by key. */
  async lookup(request: LookupRequest): Promise<ClaimView | undefined> {
    const reply = await this.send("POST", "/v1/lookups", () => request);
    return reply.status === 404 ? undefined : viewOf(reply);
  }

  /** Keys for systems further down the road. */
  async keys(id: string, names: string[]): Promise<Record<string, string>> {
    return (read(await this.send("POST", `/v1/claims/${id}/keys`, () => ({ names }))) as KeysView).keys;
  }

  /** One call, until there is an answer. */
  send(method: string, path: string, body?: (attempt: number) => unknown, within?: number, signal?: AbortSignal): Promise<Reply> {
    const exchange = (number: number, limit: number) =>
      this.#transport.ask(method, path, body && jsonText(body(number)), limit, signal);
    // What a lease needs is sent whatever others have spent: to give up one that lives is to do it twice.
    const budget = within === undefined ? this.budget : new RetryBudget(Infinity);
    return repeat(exchange, new Course(this.#policy(within), budget), signal);
  }

  /** What is worth doing only until a moment is tried as often as fits. */
  #policy(within?: number): RetryPolicy {
    if (within === undefined) return this.retry;
    return {
      ...this.retry,
      maxAttempts: 1_000_000,
      cap: Math.min(this.retry.cap, Math.max(within / 4, 50)),
      attemptTimeout: Math.min(this.retry.attemptTimeout, Math.max(within / 2, 100)),
      totalTimeout: Math.max(within, 100),
    };
  }
}
