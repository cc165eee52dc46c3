/** Run it once: a function, or a wrapper around one, over the protocol API of a sidecar or of a store in this process. */
import { Api, type ApiOptions, type Timed } from "./api.js";
import type { ClaimRequest, ClaimView, Crash } from "./api-types.js";
import { under } from "./current.js";
import { fingerprintOf, hexOf } from "./digest.js";
import { AnswerNotKept, EffectFailed, LeaseLost, ProblemError, SemelError, Unrecorded } from "./errors.js";
import { checkKey } from "./keys.js";
import { Lease } from "./lease.js";
import { merged } from "./merge.js";
import { type ErrorTerms, answerInput, outcomeOf, valueOf } from "./outcome.js";

/** How long the release of a claim is tried whose caller has left. */
const ABANDON_MS = 2000;

/** How an operation is treated. What is left out is the server's choice. */
export interface Terms extends ErrorTerms {
  /** How long the owner may be silent before it counts as gone. It is renewed by itself. */
  leaseMs?: number;
  /** How long the answer is kept. */
  retentionMs?: number;
  /** What becomes of the key should the owner vanish: `takeover` runs it again, `hold` leaves it in doubt. */
  crash?: Crash;
  /** How long the server lets a duplicate wait for the first; 0 doesn't wait. */
  waitMs?: number;
  /** Names of downstream keys that shall come with the lease, which spares a round trip. */
  derive?: string[];
  /** `fingerprint` keeps the payload inside this process, and sends a digest of it. */
  compare?: "payload" | "fingerprint";
}

/** How a process reaches its sidecar, and for whom. */
export interface SemelOptions extends ApiOptions {
  tenant?: string;
  /** For the audit trail alone. */
  actor?: string;
  terms?: Terms;
}

/** What is asked for. */
export interface Operation extends Terms {
  /** What is done, such as `charge`. */
  scope: string;
  key: string;
  /** Any JSON; left out, the key alone counts. */
  payload?: unknown;
  /** Ends the asking, and frees the key if nothing was started. It doesn't end the effect. */
  signal?: AbortSignal;
}

/** What became of it. */
export interface Result<T> {
  /** What the effect returned, now or in an earlier run, as JSON gives it back. */
  value: T;
  replayed: boolean;
  attempt: number | undefined;
  originalTime: string | undefined;
}

/** The lease is missing where the server doesn't enforce the scope. */
export type Effect<T> = (lease: Lease | undefined) => Promise<T> | T;

/** How a wrapped function is treated. */
export interface Wrapping<A extends unknown[]> extends Terms {
  scope: string;
  /** Reads the key from the arguments. */
  key: (...args: A) => string;
  /** What counts as payload; all arguments, where it isn't said. */
  payload?: (...args: A) => unknown;
}

/** 128 random bits: with them, a claim that is sent again gets the same lease. */
export function newToken(): string {
  return hexOf(crypto.getRandomValues(new Uint8Array(16)));
}

/** One for a process: `new Semel({ url: "http://127.0.0.1:8080/_semel" })`. */
export class Semel {
  readonly api: Api;
  readonly #options: SemelOptions;

  constructor(options: SemelOptions) {
    this.api = new Api(options);
    this.#options = options;
  }

  /**
   * Makes a function run once for each key. Everybody gets what the first run returned. The function stays as it is;
   * inside it, `currentLease()` is its lease.
   */
  idempotent<A extends unknown[], T>(wrapping: Wrapping<A>, effect: (...args: A) => Promise<T> | T): (...args: A) => Promise<T> {
    const { key, payload, ...terms } = wrapping;
    return async (...args) => {
      const asked = payload ? payload(...args) : args;
      const operation = { ...terms, key: key(...args), payload: asked };
      return (await this.run(operation, () => effect(...args))).value;
    };
  }

  /**
   * Runs `effect` unless it was done. Throws what the effect threw; `EffectFailed` where an earlier run failed for good;
   * `Conflict`, `InDoubt`, `GaveUp`; `LeaseLost` and `Unrecorded` where it ran and that isn't recorded.
   */
  async run<T>(operation: Operation, effect: Effect<T>): Promise<Result<T>> {
    const terms = merged<Operation>(operation, this.#options.terms, operation);
    const local = terms.compare === "fingerprint" && terms.payload !== undefined;
    const request = this.claimRequest(terms, local ? await fingerprintOf(terms.payload) : undefined);
    const { view, lease } = await this.admit(request, terms.signal);
    if (view.status === "unprotected") return result(await under(undefined, () => effect(undefined)), view, false);
    if (!lease) return result(valueOf(view) as T, view, true);
    lease.start();
    try {
      let value: T;
      try {
        value = await under(lease, () => effect(lease));
      } catch (error) {
        throw await failed(lease, error, terms);
      }
      return await completed(lease, value, view);
    } finally {
      lease.stop();
    }
  }

  /** Closes the store that `open` opened, and ends what waits for it. With a sidecar there is nothing to close. */
  close(): Promise<void> {
    return this.api.close();
  }

  /** The claim for an operation; `fingerprint` in place of its payload. */
  claimRequest(operation: Operation, fingerprint?: string): ClaimRequest {
    const { tenant, actor } = this.#options;
    const request: ClaimRequest = { scope: operation.scope, key: checkKey(operation.key), token: newToken() };
    const { payload } = operation;
    if (fingerprint !== undefined) request.fingerprint = fingerprint;
    else if (payload !== undefined) request.payload = payload;
    const policy = overrides(operation);
    if (Object.keys(policy).length > 0) request.policy = policy;
    if (operation.derive?.length) request.derive = operation.derive;
    if (tenant !== undefined) request.tenant = tenant;
    if (actor !== undefined) request.actor = actor;
    return request;
  }

  /** The terms of all operations. */
  get terms(): Terms {
    return this.#options.terms ?? {};
  }

  /** An answer, or a lease that is still good when its effect starts. */
  async admit(request: ClaimRequest, signal?: AbortSignal): Promise<{ view: Timed<ClaimView>; lease: Lease | undefined }> {
    let asked = request;
    for (let turn = 0; turn < 10; turn++) {
      signal?.throwIfAborted();
      const view = await this.api.claim(asked, signal).catch((error: unknown) => {
        if (signal?.aborted) void this.#abandon(asked);
        throw error;
      });
      if (view.status !== "claimed" || !view.lease) return { view, lease: undefined };
      const lease = new Lease(this.api, view, view.lease);
      if (signal?.aborted) {
        await released(lease);
        signal.throwIfAborted();
      }
      if (await mayStart(lease)) return { view, lease };
      // The reply was so late that the lease had lapsed: ask anew.
      asked = { ...asked, token: newToken() };
    }
    throw new LeaseLost("every lease had lapsed before its answer came");
  }

  /** Releases what a claim may have won whose caller left before its answer. The same token finds the same lease (P6). */
  async #abandon(request: ClaimRequest): Promise<void> {
    const policy = { ...request.policy, wait_ms: 0, on_busy: "refuse" as const };
    try {
      const view = await this.api.claim({ ...request, policy, retry: true }, undefined, ABANDON_MS);
      if (view.status === "claimed" && view.lease) await new Lease(this.api, view, view.lease).settle("release");
    } catch (error) {
      // It lapses, then.
      if (!(error instanceof SemelError)) throw error;
    }
  }
}

/** Frees a key under which nothing was started, which is always legal (P36). What fails lapses. */
async function released(lease: Lease): Promise<void> {
  try {
    await lease.settle("release");
  } catch (error) {
    if (!(error instanceof SemelError)) throw error;
  }
}

/** Whether its deadline is still to come. One that was won past it is renewed, once, and that has to be answered in time (P30). */
async function mayStart(lease: Lease): Promise<boolean> {
  if (lease.remaining > 0) return true;
  try {
    await lease.renew();
  } catch (error) {
    if (error instanceof LeaseLost) return false;
    throw error;
  }
  if (lease.remaining > 0) return true;
  await released(lease);
  return false;
}

function overrides(terms: Terms): NonNullable<ClaimRequest["policy"]> {
  const out: NonNullable<ClaimRequest["policy"]> = {};
  if (terms.leaseMs !== undefined) out.lease_ms = terms.leaseMs;
  if (terms.retentionMs !== undefined) out.retention_ms = terms.retentionMs;
  if (terms.crash !== undefined) out.crash = terms.crash;
  if (terms.waitMs !== undefined) {
    out.wait_ms = terms.waitMs;
    out.on_busy = terms.waitMs > 0 ? "wait" : "refuse";
  }
  return out;
}

function result<T>(value: T, view: ClaimView, replayed: boolean): Result<T> {
  return { value, replayed, attempt: view.attempt, originalTime: view.original_time };
}

/**
 * Records what an error says, and gives the error to throw. That it can't be recorded must not hide the error itself, unless it is
 * a failure for good: one that isn't kept is none, and others may be told otherwise.
 */
async function failed(lease: Lease, error: unknown, terms: Terms): Promise<unknown> {
  const { outcome, answer } = outcomeOf(error, terms);
  try {
    await lease.settle(outcome, answer);
  } catch (second) {
    if (!(second instanceof SemelError)) throw second;
    if (outcome !== "fail") return error;
    if (second instanceof ProblemError && second.code === "idempotency_lease_not_held") {
      return new LeaseLost("it failed here, and the lease was another's by then: ask again for its answer", { cause: error });
    }
    return new Unrecorded(answer?.body, { cause: error });
  }
  return outcome === "fail" ? new EffectFailed(answer?.body, false, { cause: error }) : error;
}

async function completed<T>(lease: Lease, value: T, view: ClaimView): Promise<Result<T>> {
  // What has no JSON form happened all the same, and must not happen again.
  let kept: ReturnType<typeof answerInput> = { answer: { body_omitted_bytes: 0 }, plain: undefined };
  let notKept: AnswerNotKept | undefined;
  try {
    kept = answerInput(value);
  } catch (cause) {
    notKept = new AnswerNotKept(0, { cause });
  }
  try {
    await lease.settle("complete", kept.answer);
  } catch (error) {
    if (error instanceof ProblemError && error.code === "idempotency_lease_not_held") {
      // Another run was quicker: its answer is everybody's.
      const other = error.problem.claim;
      if (!other) throw new LeaseLost("the effect ran, but the lease was another's by then", { cause: error });
      return result(valueOf(other) as T, other, true);
    }
    if (error instanceof SemelError) throw new Unrecorded(value, { cause: error });
    throw error;
  }
  if (notKept) throw notKept;
  return result(kept.plain as T, view, false);
}
