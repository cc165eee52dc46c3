/** The answers that a middleware gives itself: problem documents (RFC 9457). */
import { GaveUp, KeyInvalid, PayloadInvalid, type Problem, ProblemError, SemelError } from "./errors.js";

/** An answer to be sent. */
export interface Plain {
  status: number;
  headers: [string, string][];
  body: Uint8Array;
}

/** The request's body is past the bound. */
export class TooLarge extends SemelError {}

/** A problem document of our own. */
export function problem(status: number, code: string, title: string, more: Partial<Problem> = {}): Plain {
  return ofDocument(status, { type: `urn:semel:problem:${code}`, title, status, detail: title, code, retryable: false, ...more });
}

function ofDocument(status: number, document: Problem): Plain {
  const shown = { ...document };
  delete shown.claim;
  const headers: [string, string][] = [
    ["Content-Type", "application/problem+json"],
    ["Cache-Control", "no-store"],
  ];
  const after = document.retryAfterMs;
  if (after !== undefined) headers.push(["Retry-After", String(Math.max(1, Math.ceil(after / 1000)))]);
  return { status, headers, body: new TextEncoder().encode(JSON.stringify(shown)) };
}

export const AGAIN = { retryable: true, retryAfterMs: 1000 };

/** Takes a line for the operator. It has no key, no payload and no token. */
export type Log = (message: string) => void;

/** What `log` has, instead of saying nothing. */
export const logged: Log = (message) => console.error(message);

const HINT = "check that `semel serve` runs, that its `api.access` allows this process, that the token is right and that the URL ends in /_semel";
const EVERY_MS = 60_000;
const lastSaid = new WeakMap<Log, Map<string, number>>();

/** The same line once a minute: a wrong setting fails every request. */
export function say(log: Log, message: string): void {
  const said = lastSaid.get(log) ?? new Map<string, number>();
  lastSaid.set(log, said);
  const now = performance.now();
  if (now - (said.get(message) ?? -Infinity) < EVERY_MS) return;
  said.set(message, now);
  log(message);
}

/** The answer where there is none: nothing was started, or nobody knows; never a guess. */
export function ofError(error: unknown, log: Log = logged): Plain {
  if (error instanceof KeyInvalid) return problem(400, "idempotency_key_invalid", "The Idempotency-Key can't be used");
  if (error instanceof PayloadInvalid) return problem(400, "idempotency_payload_invalid", "The payload can't be compared");
  if (error instanceof TooLarge) {
    return problem(413, "idempotency_body_too_large", "The request's body is too large to be compared");
  }
  if (error instanceof GaveUp && error.problem?.code && error.status !== undefined) {
    return ofDocument(error.status, error.problem);
  }
  if (error instanceof ProblemError && error.code.startsWith("idempotency_")) return ofDocument(error.status, error.problem);
  if (error instanceof ProblemError) {
    // The API answered, and refuses this process: no retry of the caller changes that.
    say(log, `semel: the API answered with status ${error.status} (${error.code || "no code"}), so no request with a key is started: ${HINT}`);
    return problem(500, "idempotency_policy", "The service's idempotency is misconfigured; the request was not started");
  }
  if (error instanceof SemelError) {
    const why = error instanceof GaveUp ? error.message : error.name;
    say(log, `semel: the API can't be reached (${why}), so requests with a key are answered with 503: ${HINT}`);
    return problem(503, "idempotency_store_unavailable", "The request was not started", AGAIN);
  }
  throw error;
}
