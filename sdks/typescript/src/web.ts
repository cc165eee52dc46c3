/**
 * Handlers of the web's own `Request` and `Response`: Next.js, SvelteKit, Bun, Deno, Workers. Requests with a key run
 * once. Call it around the handler, behind whatever authenticates.
 */
import { attach, leaseOf, under } from "./current.js";
import { ABANDONED_MS, type Asked, HOLD_MS, MAX_REQUEST_BYTES, type MiddlewareOptions, OUTCOME_HEADER, admit, broken, settled } from "./http.js";
import type { Lease } from "./lease.js";
import { type Plain, TooLarge } from "./problem.js";
import { concat } from "./send.js";
import { MAX_BODY_BYTES } from "./outcome.js";

export { leaseOf };

/** Keeps a runtime from ending work whose client has left, as Workers do. */
export type WaitUntil = (work: Promise<unknown>) => void;

/** `export const POST = withIdempotency(async (request) => Response.json(…), { semel })`. */
export function withIdempotency<R extends Request, A extends unknown[]>(
  handler: (request: R, ...rest: A) => Response | Promise<Response>,
  options: MiddlewareOptions<R>,
): (request: R, ...rest: A) => Promise<Response> {
  return (request, ...rest) => {
    const work = guarded(options, request, {
      request,
      body: () => bodyOf(request),
      run: async () => handler(request, ...rest),
    });
    waitUntilOf(rest)?.(work);
    return work;
  };
}

/** Workers hand their context to the handler, after the request. */
function waitUntilOf(rest: unknown[]): WaitUntil | undefined {
  for (const given of rest) {
    const context = given as { waitUntil?: unknown } | null | undefined;
    if (typeof context?.waitUntil === "function") return (work) => (context as { waitUntil: WaitUntil }).waitUntil(work.catch(() => undefined));
  }
  return undefined;
}

/** A request, how its body is read, and what runs for it. */
export interface Guarded {
  request: Request;
  body: () => Promise<Uint8Array>;
  run: (lease: Lease | undefined) => Promise<Response>;
}

/** What is the same for all frameworks of the web's own requests. `given` is what the options' functions get. */
export async function guarded<R>(options: MiddlewareOptions<R>, given: R, { request, body, run }: Guarded): Promise<Response> {
  const url = new URL(request.url);
  // Two lines arrive joined by a comma, which no key has: they are refused all the same.
  const header: Asked["header"] = (name) => {
    const value = request.headers.get(name) ?? (name === "host" ? url.host : null);
    return value === null ? [] : [value];
  };
  const admission = await admit(options, given, request.method, header, async () => {
    return { method: request.method, path: url.pathname, query: url.search.slice(1), header, body: await body() };
  });
  if ("answer" in admission) return responseOf(admission.answer);
  if ("pass" in admission) return run(undefined);
  const { lease } = admission;
  attach(request, lease);
  lease.start();
  // Where the client has left and the handler never answers, the lease is not renewed for ever.
  const abandon = () => later(ABANDONED_MS, () => lease.stop());
  request.signal.addEventListener("abort", abandon);
  try {
    return await recorded(await ran(lease, run), lease, options);
  } finally {
    request.signal.removeEventListener("abort", abandon);
  }
}

/** The handler's answer. One that throws has ended, and its error is for the framework. */
async function ran(lease: Lease, run: Guarded["run"]): Promise<Response> {
  try {
    return await under(lease, () => run(lease));
  } catch (error) {
    await broken(lease, undefined);
    throw error;
  }
}

function later(ms: number, work: () => void): void {
  (setTimeout(work, ms) as { unref?: () => void }).unref?.();
}

/** The body, read beside the handler, which finds it unread. */
async function bodyOf(request: Request): Promise<Uint8Array> {
  if (request.bodyUsed) throw new TypeError("the request's body was read before withIdempotency: put it outermost");
  checkSize(Number(request.headers.get("content-length") ?? 0));
  const reader = request.body ? request.clone().body?.getReader() : undefined;
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (let next = await reader?.read(); next && !next.done; next = await reader?.read()) {
    size += next.value.length;
    if (size > MAX_REQUEST_BYTES) void reader?.cancel().catch(() => undefined);
    checkSize(size);
    chunks.push(next.value);
  }
  return concat(chunks);
}

/** Throws `TooLarge` where a body can't be compared. */
export function checkSize(size: number): void {
  if (size > MAX_REQUEST_BYTES) throw new TooLarge("past the bound");
}

function responseOf({ status, headers, body }: Plain): Response {
  const empty = status === 204 || status === 304;
  return new Response(empty ? null : (body as BodyInit), { status, headers });
}

type Reader = ReadableStreamDefaultReader<Uint8Array>;
type Read = Awaited<ReturnType<Reader["read"]>>;

/** Holds an answer back until it is recorded. What is too large, too slow or a stream goes on as it comes, and isn't kept. */
async function recorded<R>(given: Response, lease: Lease, options: MiddlewareOptions<R>): Promise<Response> {
  const headers = new Headers(given.headers);
  const said = headers.get(OUTCOME_HEADER)?.trim().toLowerCase();
  headers.delete(OUTCOME_HEADER);
  const { status, statusText } = given;
  const init = { status, statusText, headers };
  const settle = (body: Uint8Array | undefined, size: number) => settled(lease, { status, headers: [...headers], body, size }, said, options);
  if (!given.body) {
    const instead = await settle(new Uint8Array(), 0);
    return instead ? responseOf(instead) : new Response(null, init);
  }
  const reader = given.body.getReader();
  const broke = () => broken(lease, said);
  const isEvents = headers.get("content-type")?.toLowerCase().startsWith("text/event-stream") ?? false;
  const held = isEvents ? { chunks: [], whole: false } : await hold(reader, broke);
  if (!held.whole) return new Response(passed(reader, held, (size) => settle(undefined, size), broke), init);
  const body = concat(held.chunks);
  const instead = await settle(body, body.length);
  return instead ? responseOf(instead) : new Response(body as BodyInit, init);
}

/** What was read of a body: all of it, or as much as may be held back, and the read that goes on. */
interface Held {
  chunks: Uint8Array[];
  whole: boolean;
  pending?: Promise<Read>;
}

/** A body that breaks off has ended too, or its lease would be renewed for ever. */
async function hold(reader: Reader, broke: () => Promise<void>): Promise<Held> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<undefined>((resolve) => (timer = setTimeout(() => resolve(undefined), HOLD_MS)));
  try {
    while (size <= MAX_BODY_BYTES) {
      const pending = reader.read();
      const next = await Promise.race([pending, late]);
      if (next === undefined) return { chunks, whole: false, pending };
      if (next.done) return { chunks, whole: true };
      chunks.push(next.value);
      size += next.value.length;
    }
    return { chunks, whole: false };
  } catch (error) {
    await broke();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** A stream that tells how it ended: whole, or broken off by its source or because its reader left. */
function passed(reader: Reader, held: Held, whole: (size: number) => Promise<unknown>, broke: () => Promise<void>): ReadableStream<Uint8Array> {
  const { chunks } = held;
  let { pending } = held;
  let size = 0;
  let left = false;
  const next = async (): Promise<Read> => {
    const first = chunks.shift();
    if (first) return { done: false, value: first };
    const read = pending ?? reader.read();
    pending = undefined;
    return read;
  };
  return new ReadableStream({
    pull: async (controller) => {
      const read = await next().catch(async (error: unknown) => {
        await broke();
        throw error;
      });
      // A source that is told to stop ends as if it were whole.
      if (left) return;
      if (!read.done) {
        size += read.value.length;
        controller.enqueue(read.value);
        return;
      }
      await whole(size);
      controller.close();
    },
    cancel: async (reason) => {
      left = true;
      await Promise.all([reader.cancel(reason), broke()]);
    },
  });
}
