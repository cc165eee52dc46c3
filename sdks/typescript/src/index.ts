/**
 * Sent many times, done once, answered the same every time.
 *
 * `Client` calls a service that knows idempotency keys: the key is made once, kept, and the request sent again until there
 * is an answer. `Semel` makes functions run once, over the protocol API of a sidecar. What needs a disk or a store, and the
 * middlewares, are entries of their own: `@semel/client/outbox`, `/open`, `/express`, `/fastify`, `/hono`, `/testing`.
 */
export { Answer } from "./answer.js";
export { Api, type ApiOptions, type Transport } from "./api.js";
export { Call, Client, type ClientOptions, type KeyedOptions, type RequestOptions } from "./client.js";
export {
  AnswerNotKept,
  CallChanged,
  Conflict,
  EffectFailed,
  Final,
  GaveUp,
  InDoubt,
  KeyInvalid,
  LeaseLost,
  NoEffect,
  OpenError,
  OutboxDamaged,
  PayloadInvalid,
  ProblemError,
  SemelError,
  Unknown,
  Unrecorded,
} from "./errors.js";
export { currentLease } from "./current.js";
export type { MiddlewareOptions } from "./http.js";
export { type FetchOptions, type RetryingFetch, createFetch } from "./fetch.js";
export { checkKey, newKey } from "./keys.js";
export type { Lease } from "./lease.js";
export type { Query } from "./url.js";
export { DEFAULT_RETRY, RetryBudget, type RetryEvent, type RetryPolicy } from "./retry.js";
export { type Operation, type Result, Semel, type SemelOptions, type Terms, type Wrapping } from "./worker.js";
