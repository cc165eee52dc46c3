/** The right to run, until a time. */
import type { Api, Owner, Timed } from "./api.js";
import type { AnswerInput, ClaimView, LeaseView, Outcome } from "./api-types.js";
import { LeaseLost } from "./errors.js";

/** A lease that renews itself until it is settled. */
export class Lease {
  /** The claim's id: for logs, and for an operator. */
  readonly id: string;
  /** Larger than that of any earlier lease of the key: whoever keeps the highest can refuse a lower one. */
  readonly fence: number;
  /** 1, or more where earlier owners vanished. */
  readonly attempt: number;
  /** What the last owner kept, where it vanished after that. */
  readonly lastCheckpoint: unknown;
  readonly #api: Api;
  readonly #owner: Owner;
  readonly #renewEvery: number;
  readonly #keys: Map<string, string>;
  #deadline: number;
  #lost = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #ended = false;

  constructor(api: Api, view: Timed<ClaimView>, lease: LeaseView) {
    // A number past this would name another lease: better none than a wrong one.
    if (!Number.isSafeInteger(lease.fence)) throw new LeaseLost("the fence is past what this language can hold");
    this.id = view.id;
    this.fence = lease.fence;
    this.attempt = lease.attempt;
    this.lastCheckpoint = lease.checkpoint;
    this.#api = api;
    this.#owner = { id: view.id, token: lease.token, fence: lease.fence };
    this.#renewEvery = lease.renew_every_ms;
    this.#keys = new Map(Object.entries(lease.downstream_keys ?? {}));
    this.#deadline = view.countsFrom + lease.expires_in_ms;
  }

  /** Whether another is known to have it. */
  get lost(): boolean {
    return this.#lost;
  }

  /** Milliseconds in which something may still be started; 0 or less where it is over. */
  get remaining(): number {
    return this.#lost ? 0 : this.#deadline - performance.now();
  }

  /** `LeaseLost` where nothing more may be started: to be asked before each step that can't be undone. */
  check(): void {
    if (this.remaining <= 0) throw new LeaseLost(this.#lost ? "the lease is another's" : "the lease is past its deadline");
  }

  /** Prolongs it now. `LeaseLost` where it is another's. */
  async renew(checkpoint?: unknown): Promise<void> {
    try {
      const view = await this.#api.renew(this.#owner, checkpoint, Math.max(this.remaining, 1000));
      this.#deadline = Math.max(this.#deadline, view.countsFrom + view.expires_in_ms);
    } catch (error) {
      this.#lost ||= error instanceof LeaseLost;
      throw error;
    }
  }

  /** Keeps progress (any JSON, at most 64 KiB) for whoever runs next, should this process vanish. */
  saveCheckpoint(value: unknown): Promise<void> {
    return this.renew(value);
  }

  /** The key for a system further down the road: the same on every attempt of this operation. */
  async deriveKey(step: string): Promise<string> {
    const known = this.#keys.get(step);
    if (known !== undefined) return known;
    const found = (await this.#api.keys(this.id, [step]))[step];
    if (found === undefined) throw new LeaseLost("the server gave no key");
    this.#keys.set(step, found);
    return found;
  }

  /** Ends it. Sent until it is acknowledged, for as long as the lease may live. */
  async settle(outcome: Outcome, answer?: AnswerInput): Promise<void> {
    await this.#api.settle(this.#owner, outcome, answer, Math.max(this.remaining, 3 * this.#renewEvery));
  }

  /** Begins to renew in the background: sooner than at a turn's end where less than two turns are left. */
  start(): void {
    this.#next(Math.min(this.#renewEvery, Math.max(0, this.remaining - this.#renewEvery)));
  }

  #next(ms: number): void {
    this.#timer = setTimeout(() => void this.#turn(), ms);
    // A lease keeps no process alive that has nothing else to do.
    (this.#timer as { unref?: () => void }).unref?.();
  }

  /** Ends the renewing. */
  stop(): void {
    this.#ended = true;
    clearTimeout(this.#timer);
  }

  async #turn(): Promise<void> {
    try {
      await this.renew();
    } catch (error) {
      if (error instanceof LeaseLost) return;
      // No answer in time. The deadline stands, and the next turn may do better.
    }
    if (!this.#ended) this.#next(this.#renewEvery);
  }
}
