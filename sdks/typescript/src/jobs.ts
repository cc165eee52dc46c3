/** Jobs that are submitted many times and enqueued once (`docs/jobs.md`). */
import { problemError } from "./answer.js";
import { Api, type ApiOptions } from "./api.js";
import { AnswerNotKept, EffectFailed, SemelError } from "./errors.js";
import { checkKey, newKey } from "./keys.js";
import { textOf } from "./retry.js";
import type { Reply } from "./send.js";

const MAX_WAIT_MS = 30_000;

/** How a job is treated; what is left out is the server's choice. */
export interface SubmitOptions {
  idempotencyKey?: string;
  idempotencyTtlDays?: number;
  scope?: string;
  tenant?: string;
  nodeId?: string;
  delayMs?: number;
  priority?: number;
  maxAttempts?: number;
}

interface JobView {
  job_id: string;
  request_id: string;
  status: "accepted" | "in_progress" | "completed" | "failed";
  dedup?: boolean;
  result?: unknown;
  result_omitted_bytes?: number;
  error?: string;
}

/** A job, as it stood when it was asked for. */
export class Job {
  constructor(private readonly view: JobView) {}

  /** The same for every submission with this key, and on every start: pass it on as a key. */
  get id(): string {
    return this.view.job_id;
  }

  get requestId(): string {
    return this.view.request_id;
  }

  get status(): JobView["status"] {
    return this.view.status;
  }

  /** Whether it was submitted before. */
  get dedup(): boolean {
    return this.view.dedup ?? true;
  }

  /** Whether it is done, or failed for good. */
  get ended(): boolean {
    return this.status === "completed" || this.status === "failed";
  }

  /** What the worker gave back; throws `EffectFailed` where it failed for good. */
  get result(): unknown {
    if (this.status === "failed") throw new EffectFailed(this.view.error, true);
    if (this.status !== "completed") throw new SemelError(`the job has no result yet: ${this.status}`);
    if (this.view.result_omitted_bytes !== undefined) throw new AnswerNotKept(this.view.result_omitted_bytes);
    return this.view.result;
  }
}

function jobOf(reply: Reply): Job {
  if (reply.status >= 300) throw problemError(reply);
  return new Job(JSON.parse(textOf(reply)) as JobView);
}

/** `new Queue({ url: "http://127.0.0.1:8080" })`. */
export class Queue {
  readonly #api: Api;

  constructor(options: ApiOptions) {
    this.#api = new Api(options);
  }

  /** Enqueues a job, or finds the one that its key stands for. `Conflict` where that is of other `params`. */
  async submit(kind: string, params: unknown, options: SubmitOptions = {}): Promise<Job> {
    const { idempotencyKey: key, idempotencyTtlDays: days } = options;
    const request = {
      kind,
      params,
      // Without a key of its own, a submission still has one: its attempts are one submission.
      idempotency_key: key === undefined ? newKey() : checkKey(key),
      idempotency_ttl_sec: days === undefined ? undefined : Math.round(days * 86_400),
      delay_ms: options.delayMs,
      priority: options.priority,
      max_attempts: options.maxAttempts,
      scope: options.scope,
      tenant: options.tenant,
      client: options.nodeId === undefined ? undefined : { node_id: options.nodeId },
    };
    return jobOf(await this.#api.send("POST", "/mesh/submit_request", () => request));
  }

  /** The job once it has ended, or as it stands when the time is up. */
  async wait(jobId: string, timeoutMs = 60_000): Promise<Job> {
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      const left = Math.round(Math.max(0, Math.min(MAX_WAIT_MS, deadline - performance.now())));
      const job = jobOf(await this.#api.send("GET", `/mesh/jobs/${encodeURIComponent(jobId)}?wait_ms=${left}`));
      if (job.ended || performance.now() >= deadline) return job;
    }
  }
}
