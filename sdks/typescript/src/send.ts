/** Sends until there is an answer: the only loop of this package that asks again. */
import { SemelError } from "./errors.js";
import type { Course, Received } from "./retry.js";

/** The largest answer that is read. */
export const MAX_ANSWER_BYTES = 16 * 1024 * 1024;

/** What `fetch` looks like, for one of your own. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** A request. Its key is among its headers, the same on every attempt. */
export interface Outgoing {
  method: string;
  url: string;
  headers: Record<string, string>;
  body?: string | Uint8Array | undefined;
}

/** The answer that counts, and when its attempt and the first of all were sent, by `performance.now()`. */
export interface Reply extends Received {
  sentAt: number;
  firstSentAt: number;
  attempts: number;
}

/** Past `MAX_ANSWER_BYTES`. */
export class AnswerTooLarge extends SemelError {}

/** Waits, unless the signal ends it. */
export const sleep = (ms: number, signal?: AbortSignal) =>
  new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    signal?.addEventListener("abort", stop, { once: true });
  });

/** One attempt: its number, from 1, and the milliseconds that it has. */
export type Exchange = (attempt: number, limit: number) => Promise<Received>;

/** One call. A `signal` ends it: no further attempt is made, and what was sent may have taken effect. */
export async function repeat(exchange: Exchange, course: Course, signal?: AbortSignal): Promise<Reply> {
  let firstSentAt: number | undefined;
  for (;;) {
    signal?.throwIfAborted();
    const limit = course.begin();
    const sentAt = performance.now();
    firstSentAt ??= sentAt;
    let pause: number | undefined;
    try {
      const received = await exchange(course.attempts, limit);
      pause = course.afterResponse(received);
      if (pause === undefined) return { ...received, sentAt, firstSentAt, attempts: course.attempts };
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof SemelError) throw error;
      pause = course.afterError(error);
    }
    await sleep(pause, signal);
  }
}

/** One call over HTTP. */
export const send = (fetch: Fetch, build: (attempt: number) => Outgoing, course: Course, signal?: AbortSignal): Promise<Reply> =>
  repeat((number, limit) => attempt(fetch, build(number), limit, signal), course, signal);

/** One attempt over HTTP. */
export async function attempt(fetch: Fetch, outgoing: Outgoing, limit: number, outer?: AbortSignal): Promise<Received> {
  // Covers the body as well: an answer that drips for ever is no answer.
  const timeout = new AbortController();
  const timer = setTimeout(() => timeout.abort(new DOMException("no answer in time", "TimeoutError")), limit);
  const signal = outer ? AbortSignal.any([outer, timeout.signal]) : timeout.signal;
  try {
    const { method, headers, body } = outgoing;
    // A redirect is an answer. Followed, it would take the key to another place, and what that one says, or that it isn't
    // there, would be taken for what became of this request.
    const redirect = "manual";
    const response = await fetch(outgoing.url, { method, headers, signal, redirect, ...(body === undefined ? {} : { body: body as BodyInit }) });
    return { status: response.status, headers: response.headers, body: await gathered(response) };
  } finally {
    clearTimeout(timer);
  }
}

/** By a reader: Safari's streams can't be iterated over. */
async function gathered(response: Response): Promise<Uint8Array> {
  if (response.body === null) return new Uint8Array();
  const reader = response.body.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    size += next.value.length;
    if (size > MAX_ANSWER_BYTES) {
      await reader.cancel().catch(() => undefined);
      throw new AnswerTooLarge(`the answer has more than ${MAX_ANSWER_BYTES} bytes`);
    }
    chunks.push(next.value);
  }
  return concat(chunks);
}

/** One after the other. */
export function concat(chunks: Uint8Array[]): Uint8Array {
  const out = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
  let at = 0;
  for (const chunk of chunks) {
    out.set(chunk, at);
    at += chunk.length;
  }
  return out;
}
