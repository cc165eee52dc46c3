/**
 * For tests of code that uses this package: a server in memory, a clock that the test moves, replies that get lost.
 *
 * It decides by the same table as the real one (`spec/protocol.md`), for one process. That your service works with the
 * real one is for a test with the real one to show.
 */
import type { AnswerInput, ClaimRequest, ClaimView, RenewRequest, SettleRequest, Status } from "./api-types.js";
import { canonicalOf } from "./canonical.js";
import { hexOf } from "./digest.js";
import { PayloadInvalid } from "./errors.js";
import type { Fetch } from "./send.js";
import { Semel, type SemelOptions } from "./worker.js";

interface Kept {
  state: Status;
  fingerprint: string;
  token: string;
  fence: number;
  attempt: number;
  crash: "takeover" | "hold";
  lease: number;
  leaseEnd: number;
  retention: number;
  expires: number;
  checkpoint: unknown;
  answer: AnswerInput;
}

type Said = [status: number, body: object];

const problem = (status: number, code: string, more: object = {}): Said => [
  status,
  { type: `urn:semel:problem:${code}`, title: code, status, detail: code, code, retryable: false, ...more },
];

/** How the fake is set up; spans in milliseconds. */
export interface FakeOptions {
  leaseMs?: number;
  retentionMs?: number;
  maxAttempts?: number;
}

/** A server in memory. `semel()` is a client of it, `fetch` is for others. */
export class FakeSemel {
  /** What was asked, in order: `claim`, `renew`, `settle`, `look`, `keys`, `lookup`. */
  readonly calls: string[] = [];
  readonly #records = new Map<string, Kept>();
  readonly #options: Required<FakeOptions>;
  #ahead = 0;
  #fence = 0;
  #toLose = 0;

  constructor(options: FakeOptions = {}) {
    this.#options = { leaseMs: 30_000, retentionMs: 86_400_000, maxAttempts: 3, ...options };
  }

  /** A client of it. */
  semel(options: Partial<SemelOptions> = {}): Semel {
    const retry = { base: 1, cap: 10, attemptTimeout: 5000, totalTimeout: 10_000 };
    return new Semel({ url: "http://semel.test", retry, fetch: this.fetch, ...options });
  }

  /** Moves the clock: leases lapse, records expire. */
  advance(ms: number): void {
    this.#ahead += ms;
  }

  /** The next `count` requests are carried out, and their answers lost. */
  loseReplies(count: number): void {
    this.#toLose += count;
  }

  /** Where a key stands: `running`, `completed`, `failed`, `in_doubt`, `released`, or nothing. */
  state(scope: string, key: string, tenant = ""): Status | undefined {
    return this.#live(idOf({ scope, key, tenant }))?.state;
  }

  /** In place of the real one. */
  readonly fetch: Fetch = async (url, init) => {
    await Promise.resolve();
    const body = typeof init.body === "string" ? (JSON.parse(init.body) as object) : {};
    const [status, said] = this.#route(new URL(url).pathname.split("/").slice(2), body);
    if (this.#toLose > 0) {
      this.#toLose -= 1;
      throw new TypeError("lost by the test");
    }
    const type = status < 400 ? "application/json" : "application/problem+json";
    return new Response(JSON.stringify(said), { status, headers: { "Content-Type": type } });
  };

  #now(): number {
    return performance.now() + this.#ahead;
  }

  #route(path: string[], body: object): Said {
    const [first, id = "", action = "look"] = path;
    if (first === "claims" && path.length === 1) {
      this.calls.push("claim");
      return this.#claim(body as ClaimRequest);
    }
    if (first === "lookups") {
      this.calls.push("lookup");
      return this.#look(idOf(body as ClaimRequest));
    }
    this.calls.push(action);
    if (action === "look") return this.#look(id);
    if (action === "keys") return [200, { id, keys: keysOf(id, (body as { names: string[] }).names) }];
    const record = this.#live(id);
    const asked = body as SettleRequest;
    if (record?.token !== asked.token || record.fence !== asked.fence) {
      const done = action === "settle" && (record?.state === "completed" || record?.state === "failed");
      return problem(409, "idempotency_lease_not_held", done ? { claim: this.#view(id, record, true) } : {});
    }
    return action === "renew" ? this.#renew(id, record, asked) : this.#settle(id, record, asked);
  }

  #live(id: string): Kept | undefined {
    const record = this.#records.get(id);
    return record && record.expires > this.#now() ? record : undefined;
  }

  #claim(asked: ClaimRequest): Said {
    const id = idOf(asked);
    let print: string;
    try {
      print = asked.fingerprint ?? ("payload" in asked ? canonicalOf(asked.payload) : "");
    } catch (error) {
      if (error instanceof PayloadInvalid) return problem(400, "idempotency_payload_invalid");
      throw error;
    }
    const record = this.#live(id);
    if (!record || record.state === "released") return this.#won(id, this.#first(asked, print), asked);
    if (record.fingerprint !== print) return problem(422, "idempotency_conflict");
    if (record.state === "completed" || record.state === "failed") return [200, this.#view(id, record, true)];
    const running = record.state === "running";
    // P6: the same lease, unchanged. One that has lapsed is lapsed still.
    if (running && record.token === asked.token) return this.#granted(id, record, asked);
    if (running && record.leaseEnd > this.#now()) {
      return problem(409, "idempotency_in_flight", { retryable: true, retryAfterMs: 5 });
    }
    if (running && record.crash === "takeover" && record.attempt < this.#options.maxAttempts) {
      record.token = asked.token ?? "";
      record.fence = ++this.#fence;
      record.attempt += 1;
      return this.#won(id, record, asked);
    }
    record.state = "in_doubt";
    return problem(409, "idempotency_in_doubt");
  }

  #first(asked: ClaimRequest, print: string): Kept {
    const { policy = {}, token = "" } = asked;
    return {
      state: "running",
      fingerprint: print,
      token,
      fence: ++this.#fence,
      attempt: 1,
      crash: policy.crash ?? "takeover",
      lease: policy.lease_ms ?? this.#options.leaseMs,
      leaseEnd: 0,
      retention: policy.retention_ms ?? this.#options.retentionMs,
      expires: 0,
      checkpoint: undefined,
      answer: {},
    };
  }

  #won(id: string, record: Kept, asked: ClaimRequest): Said {
    this.#records.set(id, record);
    record.leaseEnd = this.#now() + record.lease;
    record.expires = this.#now() + record.retention;
    return this.#granted(id, record, asked);
  }

  #granted(id: string, record: Kept, asked: ClaimRequest): Said {
    const lease = {
      token: record.token,
      fence: record.fence,
      attempt: record.attempt,
      expires_in_ms: record.lease,
      renew_every_ms: Math.round(record.lease / 3),
      crash: record.crash,
      downstream_keys: keysOf(id, asked.derive ?? []),
      checkpoint: record.checkpoint,
    };
    return [201, { ...this.#view(id, record), status: "claimed", lease }];
  }

  #renew(id: string, record: Kept, asked: RenewRequest): Said {
    if (record.state !== "running") return problem(409, "idempotency_lease_not_held");
    record.leaseEnd = this.#now() + record.lease;
    if ("checkpoint" in asked) record.checkpoint = asked.checkpoint;
    return [200, { id, status: "running", expires_in_ms: record.lease, took_ms: 0 }];
  }

  #settle(id: string, record: Kept, asked: SettleRequest): Said {
    const retry = record.crash === "hold" ? "in_doubt" : "released";
    const states = { complete: "completed", fail: "failed", release: "released", doubt: "in_doubt", retry } as const;
    const next = states[asked.outcome];
    if (record.state !== "running" && record.state !== next) return problem(409, "idempotency_lease_not_held");
    record.state = next;
    record.answer = asked.answer ?? {};
    record.expires = this.#now() + record.retention;
    return [200, this.#view(id, record)];
  }

  #look(id: string): Said {
    const record = this.#live(id);
    return record ? [200, this.#view(id, record)] : problem(404, "not_found");
  }

  #view(id: string, record: Kept, replayed = false): ClaimView {
    const view: ClaimView = { id, status: record.state, replayed, took_ms: 0, fence: record.fence, attempt: record.attempt };
    view.original_time = "2026-01-01T00:00:00.000Z";
    if (record.state === "completed" || record.state === "failed") view.answer = record.answer;
    return view;
  }
}

/** No two keys have the same, and it tells no more than a test knows. */
function idOf({ tenant = "", scope, key }: { tenant?: string; scope: string; key: string }): string {
  return hexOf(new TextEncoder().encode(JSON.stringify([tenant, scope, key])));
}

/** The same for each attempt, another for each step. The real server's look alike, and are hashes. */
function keysOf(id: string, names: string[]): Record<string, string> {
  return Object.fromEntries(names.map((name) => [name, `semel-${id}-${hexOf(new TextEncoder().encode(name))}`]));
}
