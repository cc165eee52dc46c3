/** BullMQ: a job that runs again, after a crash or because it was added twice, has its effect once. */
import { DelayedError, type Job, type Processor, RateLimitError, UnrecoverableError, WaitingChildrenError, WaitingError } from "bullmq";
import { AnswerNotKept, Conflict, EffectFailed, InDoubt, KeyInvalid, PayloadInvalid } from "./errors.js";
import { merged } from "./merge.js";
import type { Semel, Terms } from "./worker.js";

/** How the jobs of a processor are treated. */
export interface ProcessorOptions<D, R, N extends string> extends Terms {
  semel: Semel;
  /** What is done; the queue's name unless said. */
  scope?: string;
  /**
   * What stands for the work. Unless said, the job itself, by its id and the time when it was added: it is done once
   * however often it runs. By its data, as in `(job) => job.data.order`, two jobs for one order are done once as well.
   */
  key?: (job: Job<D, R, N>) => string;
  /** What must be the same for the same key; the job's data unless said. */
  payload?: (job: Job<D, R, N>) => unknown;
}

/** What no further attempt of the queue would change. */
const FINAL = [EffectFailed, Conflict, InDoubt, AnswerNotKept, KeyInvalid, PayloadInvalid];
/** By these a processor says that the job is to run again, later. */
const LATER = [DelayedError, RateLimitError, WaitingChildrenError, WaitingError];

/** `new Worker("charges", idempotentProcessor(charge, { semel }), { connection })`. */
export function idempotentProcessor<D = unknown, R = unknown, N extends string = string>(
  processor: Processor<D, R, N>,
  options: ProcessorOptions<D, R, N>,
): Processor<D, R, N> {
  const { semel, scope, key, payload, ...terms } = options;
  const { final = [], noEffect = [] } = merged<Terms>(semel.terms, terms);
  return async (job, ...rest) => {
    const operation = {
      ...terms,
      final: [UnrecoverableError, ...final],
      noEffect: [...LATER, ...noEffect],
      scope: scope ?? job.queueName,
      key: key ? key(job) : `${job.id ?? ""}-${job.timestamp}`,
      payload: payload ? payload(job) : job.data,
    };
    try {
      return (await semel.run<R>(operation, () => processor(job, ...rest))).value;
    } catch (error) {
      throw toldTo(error);
    }
  };
}

/** An error in the queue's words: it tries again unless it is told not to. */
function toldTo(error: unknown): unknown {
  if (!FINAL.some((kind) => error instanceof kind)) return error;
  const { name, message, cause } = error as Error;
  if (cause instanceof UnrecoverableError) return cause;
  return Object.assign(new UnrecoverableError(`${name}: ${message}`), { cause: error });
}
