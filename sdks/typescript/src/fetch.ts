/** A `fetch` that asks again with the key it began with: for the clients that other people wrote. */
import { GaveUp } from "./errors.js";
import { checkKey, newKey } from "./keys.js";
import { merged } from "./merge.js";
import { Course, DEFAULT_RETRY, type Received, RetryBudget, type RetryPolicy } from "./retry.js";
import { concat, sleep } from "./send.js";

/** How `createFetch` is set up. */
export interface FetchOptions {
  /** As for `Client`; but an attempt has no time limit unless `attemptTimeout` says one, as those who call bring their own. */
  retry?: Partial<RetryPolicy>;
  budget?: RetryBudget;
  /** The key of a request that has none among its headers; made, where this gives none. */
  key?: (request: Request) => string | undefined;
  /** What sends. */
  fetch?: (input: string, init?: RequestInit) => Promise<Response>;
}

/** What `createFetch` gives: it goes wherever `fetch` goes. */
export type RetryingFetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

const HEADER = "Idempotency-Key";
const SAFE = new Set(["GET", "HEAD", "OPTIONS"]);
/** So much of an answer is read before it is handed over, so that one that breaks off is asked for again. */
const PEEK_BYTES = 1024 * 1024;
/** The longest that a timer can wait. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * A `fetch` that retries by this package's rules. Every request that may change something has one key for all its attempts:
 * that of its `Idempotency-Key` header, else of `key`, else one that is made. An answer is given as it came, whatever its
 * status; where there is none in the end, `GaveUp` is thrown.
 */
export function createFetch(options: FetchOptions = {}): RetryingFetch {
  const policy = merged<RetryPolicy>({ ...DEFAULT_RETRY, attemptTimeout: Infinity }, options.retry);
  const budget = options.budget ?? new RetryBudget();
  return async (input, init) => {
    // It makes the body's bytes and their type once: a form would get another boundary each time.
    const request = new Request(input, init);
    const safe = SAFE.has(request.method);
    const key = keyOf(request, options, safe);
    const headers = new Headers(request.headers);
    if (key !== undefined) headers.set(HEADER, key);
    const body = request.body ? await request.arrayBuffer() : undefined;
    const { method, signal } = request;
    const sent: RequestInit = { ...(input instanceof Request ? settingsOf(input) : {}), ...init, method, headers };
    if (body !== undefined) sent.body = body;
    const course = new Course(policy, budget, key, undefined, safe);
    const ask = (given: AbortSignal) => (options.fetch ?? fetch)(request.url, { ...sent, signal: given });
    return answered(ask, course, policy, signal);
  };
}

function keyOf(request: Request, options: FetchOptions, safe: boolean): string | undefined {
  const given = request.headers.get(HEADER);
  if (given !== null) return given;
  if (safe) return undefined;
  const own = options.key?.(request);
  return own === undefined ? newKey() : checkKey(own);
}

/** What a request has besides its URL, method, headers and body. */
function settingsOf({ cache, credentials, integrity, keepalive, mode, redirect, referrer, referrerPolicy }: Request): RequestInit {
  return { cache, credentials, integrity, keepalive, mode, redirect, referrer, referrerPolicy };
}

async function answered(
  ask: (signal: AbortSignal) => Promise<Response>,
  course: Course,
  policy: RetryPolicy,
  signal: AbortSignal,
): Promise<Response> {
  for (;;) {
    signal.throwIfAborted();
    const limit = course.begin();
    const timeout = new AbortController();
    const ms = policy.attemptTimeout === Infinity ? Infinity : limit;
    const stop = () => timeout.abort(new DOMException("no answer in time", "TimeoutError"));
    const timer = ms <= MAX_TIMER_MS ? setTimeout(stop, ms) : undefined;
    let response: Response | undefined;
    let pause: number | undefined;
    try {
      response = await ask(AbortSignal.any([signal, timeout.signal]));
      pause = course.afterResponse(await peeked(response));
      if (pause === undefined) return response;
      void response.body?.cancel().catch(() => undefined);
    } catch (error) {
      signal.throwIfAborted();
      // The last answer is an answer, for those who know its status.
      if (error instanceof GaveUp && response) return response;
      pause = course.afterError(error);
    } finally {
      clearTimeout(timer);
    }
    await sleep(pause, signal);
  }
}

/** Reads a copy. What is a stream, or larger than is looked at, goes to the caller as it comes. */
async function peeked(response: Response): Promise<Received> {
  const { status, headers } = response;
  const isEvents = headers.get("content-type")?.toLowerCase().startsWith("text/event-stream") ?? false;
  const reader = isEvents ? undefined : response.clone().body?.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (let next = await reader?.read(); next && !next.done; next = await reader?.read()) {
    chunks.push(next.value);
    size += next.value.length;
    if (size > PEEK_BYTES) {
      void reader?.cancel().catch(() => undefined);
      break;
    }
  }
  return { status, headers, body: concat(chunks) };
}
