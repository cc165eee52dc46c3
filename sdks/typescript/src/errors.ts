/**
 * What can go wrong, in three meanings: it did not happen, it happened, nobody knows.
 *
 * Errors never carry keys in full, payloads or tokens: they end up in logs.
 */
import type { ClaimView, ProblemDocument } from "./api-types.js";

/** The root of them all. */
export class SemelError extends Error {
  constructor(message?: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** A store that can't be opened: the message says what is wrong and what to do. */
export class OpenError extends SemelError {}

/** A text that can't be a key (rule P1). */
export class KeyInvalid extends SemelError {
  constructor(readonly reason: "empty" | "too_long" | "character") {
    super(`the key can't be used: ${reason}`);
  }
}

/** A payload that can't be compared (rule P3). */
export class PayloadInvalid extends SemelError {
  constructor(readonly reason: "duplicate" | "number" | "depth" | "syntax") {
    super(`the payload can't be compared as JSON: ${reason}`);
  }
}

/** A problem document, as far as it is one. */
export type Problem = Partial<ProblemDocument> & { claim?: ClaimView };

/** The server refused, with a problem document (RFC 9457). Asking again gets the same refusal. */
export class ProblemError extends SemelError {
  readonly code: string;

  constructor(
    readonly status: number,
    readonly problem: Problem,
    options?: ErrorOptions,
  ) {
    super(`${problem.code ?? status}: ${problem.detail ?? problem.title ?? "the server refused"}`, options);
    this.code = problem.code ?? "";
  }
}

/** The key was used with another payload. A bug in the caller: nothing was done, and a retry won't help. */
export class Conflict extends ProblemError {}

/** Whether an earlier run took effect is not known. It isn't run again until an operator resolves it. */
export class InDoubt extends ProblemError {}

/** The lease is another's, or past its deadline: start nothing more. Nothing was recorded. */
export class LeaseLost extends SemelError {}

/** What is known when there is no answer. */
export interface GaveUpDetails {
  /** The key, to ask again with. */
  key: string | undefined;
  attempts: number;
  reason: string;
  /** Whether it may have taken effect all the same. */
  unknown: boolean;
  /** The last answer, where there was one. */
  status?: number | undefined;
  problem?: Problem | undefined;
}

/** Every attempt failed, or the budget or the time ran out. */
export class GaveUp extends SemelError {
  readonly attempts: number;
  readonly unknown: boolean;
  readonly status: number | undefined;
  readonly problem: Problem | undefined;
  // Private, so that printing the error doesn't print the key.
  readonly #key: string | undefined;

  constructor(details: GaveUpDetails, options?: ErrorOptions) {
    const known = details.unknown ? "it may have taken effect" : "it was not done";
    super(`gave up after ${details.attempts} attempt(s), ${details.reason}; ${known}`, options);
    this.#key = details.key;
    this.attempts = details.attempts;
    this.unknown = details.unknown;
    this.status = details.status;
    this.problem = details.problem;
  }

  /** The key, to ask again with. */
  get key(): string | undefined {
    return this.#key;
  }
}

/** A call of this name is in the outbox with another request. */
export class CallChanged extends SemelError {}

/** A file of the outbox can't be read. It is never taken for a call without a key. */
export class OutboxDamaged extends SemelError {}

/** The effect failed for good, now or in an earlier run: `answer` is the failure that was kept. */
export class EffectFailed extends SemelError {
  constructor(
    readonly answer: unknown,
    readonly replayed: boolean,
    options?: ErrorOptions,
  ) {
    super(`the effect failed for good${replayed ? ", in an earlier run" : ""}`, options);
  }
}

/** It was done before, and its answer was too large to keep, or no JSON. */
export class AnswerNotKept extends SemelError {
  constructor(
    readonly size: number,
    options?: ErrorOptions,
  ) {
    super(`done; the answer of ${size} bytes was not kept`, options);
  }
}

const GONE = ["idempotency_answer_erased", "idempotency_answer_expired"];

/** Whether it was done, and its answer was not kept, or no longer. */
export function answerIsGone(error: unknown): boolean {
  return error instanceof AnswerNotKept || (error instanceof ProblemError && GONE.includes(error.code));
}

/** The effect happened, and that could not be recorded. `value` is what it returned. */
export class Unrecorded extends SemelError {
  constructor(
    readonly value: unknown,
    options?: ErrorOptions,
  ) {
    super("the effect ran, and its outcome could not be recorded", options);
  }
}

/** For effects to throw: it failed before anything happened. The key is free again. */
export class NoEffect extends SemelError {}

/** For effects to throw: it was sent, and no reply came. The key is in doubt until resolved. */
export class Unknown extends SemelError {}

/** For effects to throw: it failed for good. `answer` is kept, and given to everybody who asks again. */
export class Final extends SemelError {
  constructor(readonly answer: unknown) {
    super("the effect failed for good");
  }
}
