/** When to ask again: full jitter, `Retry-After`, a budget, and a stop on conflict. No I/O: one place decides. */
import { GaveUp, type Problem } from "./errors.js";

const RETRYABLE = new Set([408, 425, 429, 500, 502, 503, 504]);
/** Codes that say that this attempt did nothing. Being told to wait is none of them: the key is running then. */
const NOT_STARTED = new Set([
  "idempotency_store_unavailable",
  "idempotency_late",
  "idempotency_body_broken",
  "idempotency_body_slow",
  "upstream_unreachable",
  "audit_unavailable",
]);
/** Codes of a server in good health that asks for patience: bounded by time, not by attempts. */
const WAITING = new Set(["idempotency_in_flight", "idempotency_too_many_waiters"]);
const MAX_PROBLEM_CHARACTERS = 64 * 1024;

/** A step of a call, for counters and logs. It never has the key, the URL or a body. */
export interface RetryEvent {
  /** An attempt begins; another follows after a pause; the answer is a replay, conflict or doubt; no more tries. */
  kind: "attempt" | "retry" | "replay" | "conflict" | "in_doubt" | "gave_up";
  /** The attempt that it is about, from 1. */
  attempt: number;
  /** The pause before the next attempt, in milliseconds. */
  pause: number;
  /** Why there is another attempt, or none any more. */
  reason: string;
}

const ENDS = new Map<string | undefined, RetryEvent["kind"]>([
  ["idempotency_conflict", "conflict"],
  ["idempotency_in_doubt", "in_doubt"],
  ["idempotency_record_unreadable", "in_doubt"],
]);

/** All spans in milliseconds. */
export interface RetryPolicy {
  /** The most attempts of one call; being told to wait for a run under way doesn't count. */
  maxAttempts: number;
  /** The first pause is random between 0 and this; each further one between 0 and twice the last bound. */
  base: number;
  /** The bound's bound. */
  cap: number;
  /** For one attempt. Longer than the server waits for a run under way, which is 30 s. */
  attemptTimeout: number;
  /** For all of them, pauses included. */
  totalTimeout: number;
  /** A server that asks for a longer pause is not waited for. */
  maxRetryAfter: number;
  /** Called for each step of each call. What it throws is dropped, as with the others. */
  onEvent?: (event: RetryEvent) => void;
  /** Called before each pause, of which `pause` is the length. */
  onRetry?: (event: RetryEvent) => void;
  /** Called when there is no further attempt, and no answer. */
  onGiveUp?: (event: RetryEvent) => void;
}

/** What is not said otherwise. */
export const DEFAULT_RETRY: Readonly<RetryPolicy> = {
  maxAttempts: 6,
  base: 200,
  cap: 10_000,
  attemptTimeout: 35_000,
  totalTimeout: 120_000,
  maxRetryAfter: 60_000,
};

/**
 * How many retries a process may spend: a reserve, and a share of its calls. When a server is down, every client that
 * retries multiplies its load; the budget bounds that.
 */
export class RetryBudget {
  #left: number;

  constructor(
    private readonly reserve = 100,
    private readonly perCall = 0.2,
  ) {
    this.#left = reserve;
  }

  /** A first attempt: earns its share. */
  call(): void {
    this.#left = Math.min(this.reserve, this.#left + this.perCall);
  }

  /** Whether one more retry may be spent. */
  retry(): boolean {
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }

  /** What may still be spent. */
  get left(): number {
    return this.#left;
  }
}

/** An answer that was read to its end. */
export interface Received {
  status: number;
  headers: Headers;
  body: Uint8Array;
}

/** The body of an answer, as text. */
export const textOf = (received: Received): string => new TextDecoder().decode(received.body);

/** A service writes what it likes under these names: what isn't of the kind that is read here is left out. */
function checked(value: object): Problem {
  const problem: Problem = { ...value };
  const after = problem.retryAfterMs;
  if (typeof problem.code !== "string") delete problem.code;
  if (typeof problem.retryable !== "boolean") delete problem.retryable;
  if (typeof after !== "number" || !Number.isFinite(after) || after < 0) delete problem.retryAfterMs;
  return problem;
}

/** What Stripe calls an `idempotency_error`, in this package's words: a conflict, or a key that is in use. */
function ofStripe(status: number, error: unknown): Problem {
  const { type, code } = (typeof error === "object" && error !== null ? error : {}) as { type?: unknown; code?: unknown };
  if (code === "idempotency_key_in_use") return { code: "idempotency_in_flight", retryable: true };
  if (type !== "idempotency_error") return {};
  return status === 409 ? { code: "idempotency_in_flight", retryable: true } : { code: "idempotency_conflict", retryable: false };
}

/** The problem document of an answer, or nothing. */
export function problemOf(received: Received): Problem {
  const media = (received.headers.get("content-type") ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
  if (received.status < 400 || received.body.length > MAX_PROBLEM_CHARACTERS) return {};
  if (media !== "application/json" && !media.endsWith("+json")) return {};
  try {
    const value: unknown = JSON.parse(textOf(received));
    if (value === null || typeof value !== "object" || Array.isArray(value)) return {};
    return { ...ofStripe(received.status, (value as { error?: unknown }).error), ...checked(value) };
  } catch {
    return {};
  }
}

/** How long the server asks to wait: the finer of what it says, in milliseconds. */
export function retryAfter(headers: Headers, problem: Problem, now = Date.now()): number | undefined {
  if (problem.retryAfterMs !== undefined) return problem.retryAfterMs;
  const millis = headers.get("retry-after-ms")?.trim() ?? "";
  if (/^[0-9]{1,12}(\.[0-9]+)?$/.test(millis)) return Number(millis);
  const text = headers.get("retry-after")?.trim();
  if (!text) return undefined;
  if (/^[0-9]{1,9}$/.test(text)) return Number(text) * 1000;
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}

/** The word of other APIs, OpenAI's and Stripe's among them. */
function shouldRetry(headers: Headers): boolean | undefined {
  const said = (headers.get("x-should-retry") ?? headers.get("stripe-should-retry"))?.trim().toLowerCase();
  return said === "true" ? true : said === "false" ? false : undefined;
}

/** What an answer means for the next attempt. */
export interface Verdict {
  again: boolean;
  counts: boolean;
  after: number | undefined;
  nothingDone: boolean;
}

/** Whether to ask again. What the answer says itself counts more than its status. */
export function judge(received: Received): Verdict {
  const problem = problemOf(received);
  const after = retryAfter(received.headers, problem);
  const { status } = received;
  // A plain 409 may be a conflict for good; one that names a time is not.
  const byStatus = RETRYABLE.has(status) || (status === 409 && after !== undefined);
  const said = problem.retryable ?? shouldRetry(received.headers) ?? byStatus;
  const again = said && status >= 400;
  const code = problem.code ?? "";
  return { again, counts: !WAITING.has(code), after, nothingDone: NOT_STARTED.has(code) };
}

/** Where time and chance come from; tests bring their own. */
export interface Sources {
  now(): number;
  chance(): number;
}

const SOURCES: Sources = { now: () => performance.now(), chance: () => Math.random() };

/** The attempts of one call: how many, how long, when the next. */
export class Course {
  attempts = 0;
  /** Whether it may have taken effect: to be set from the start where somebody may have sent it before. */
  unknown = false;
  readonly #end: number;
  #counted = 0;

  constructor(
    private readonly policy: RetryPolicy,
    private readonly budget: RetryBudget,
    private readonly key?: string,
    private readonly sources: Sources = SOURCES,
    /** Whether the request changes nothing, so that nothing is unknown in the end. */
    private readonly safe = false,
  ) {
    this.#end = sources.now() + policy.totalTimeout;
    budget.call();
  }

  /** Begins an attempt; answers with the time it may take. */
  begin(): number {
    this.attempts += 1;
    this.#tell("attempt");
    return Math.max(1, Math.min(this.policy.attemptTimeout, this.#end - this.sources.now()));
  }

  /** The pause before the next attempt, or nothing where this answer is the last; else `GaveUp`. */
  afterResponse(received: Received): number | undefined {
    const verdict = judge(received);
    if (!verdict.again) {
      const replayed = received.headers.get("idempotent-replayed") === "true";
      const end = replayed ? "replay" : ENDS.get(problemOf(received).code);
      if (end) this.#tell(end);
      return undefined;
    }
    this.unknown ||= !verdict.nothingDone && !this.safe;
    return this.#pause(`the last answer was ${received.status}`, verdict.counts, verdict.after, received);
  }

  /** The pause after an attempt without an answer. */
  afterError(error: unknown): number {
    this.unknown ||= !neverSent(error) && !this.safe;
    const name = error instanceof Error ? error.name : "error";
    return this.#pause(`no answer (${name})`, true, undefined, undefined, error);
  }

  #pause(reason: string, counts: boolean, after?: number, received?: Received, cause?: unknown): number {
    const { policy } = this;
    if (counts) this.#counted += 1;
    const bound = Math.min(policy.cap, policy.base * 2 ** Math.min(this.attempts - 1, 32));
    // What the server asks for is the least, and the jitter comes on top: all who were told the same come apart.
    const pause = (after ?? 0) + this.sources.chance() * bound;
    const stop = (why: string): GaveUp => {
      const { key, attempts, unknown } = this;
      this.#tell("gave_up", 0, why);
      const problem = received && problemOf(received);
      return new GaveUp({ key, attempts, unknown, reason: why, status: received?.status, problem }, { cause });
    };
    if (counts && this.#counted >= policy.maxAttempts) throw stop(reason);
    if (after !== undefined && after > policy.maxRetryAfter) throw stop(`${reason}, which asks for too long a pause`);
    if (this.sources.now() + pause >= this.#end) throw stop(`${reason}, and the time is up`);
    if (counts && !this.budget.retry()) throw stop(`${reason}, and the retry budget is spent`);
    this.#tell("retry", pause, reason);
    return pause;
  }

  #tell(kind: RetryEvent["kind"], pause = 0, reason = ""): void {
    const { onEvent, onRetry, onGiveUp } = this.policy;
    for (const hook of [onEvent, kind === "retry" ? onRetry : undefined, kind === "gave_up" ? onGiveUp : undefined]) {
      try {
        hook?.({ kind, attempt: this.attempts, pause, reason });
      } catch {
        // Counters that fail change no call.
      }
    }
  }
}

/** Only what provably never left: a connection that was refused, or a name that isn't known. */
function neverSent(error: unknown): boolean {
  const codes = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);
  for (let found = error; found instanceof Error; found = found.cause) {
    const { code } = found as { code?: unknown };
    if (typeof code === "string" && codes.has(code)) return true;
  }
  return false;
}
