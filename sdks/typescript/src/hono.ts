/** Hono middleware: requests with a key run once. Put it after whatever authenticates. */
import type { Context, MiddlewareHandler } from "hono";
import { type Asked, MAX_REQUEST_BYTES, type MiddlewareOptions, OUTCOME_HEADER, type Plain, TooLarge, admit, broken, settled } from "./http.js";
import type { Lease } from "./lease.js";

/** Where a handler finds its lease: `c.get("semelLease")`. */
export interface Variables {
  semelLease: Lease | undefined;
}

type C = Context<{ Variables: Variables }>;

/** `app.use(idempotency({ semel }))`. */
export function idempotency(options: MiddlewareOptions<C>): MiddlewareHandler<{ Variables: Variables }> {
  return async (c: C, next) => {
    // Two lines arrive joined by a comma, which no key has: they are refused all the same.
    const header: Asked["header"] = (name) => {
      const value = c.req.header(name) ?? (name === "host" ? new URL(c.req.url).host : undefined);
      return value === undefined ? [] : [value];
    };
    const admission = await admit(options, c, c.req.method, header, async () => {
      const url = new URL(c.req.url);
      return { method: c.req.method, path: url.pathname, query: url.search.slice(1), header, body: await bodyOf(c) };
    });
    if ("answer" in admission) return response(admission.answer);
    if ("pass" in admission) {
      await next();
      return undefined;
    }
    const { lease } = admission;
    c.set("semelLease", lease);
    lease.start();
    try {
      await next();
    } catch (error) {
      await broken(lease, undefined);
      throw error;
    }
    const answer = await recorded(c.res, lease, options.keepHeaders);
    // Hono adds the headers of the answer before to the next one, unless there is none.
    c.res = undefined;
    c.res = answer;
    return undefined;
  };
}

async function bodyOf(c: C): Promise<Uint8Array> {
  if (Number(c.req.header("content-length") ?? 0) > MAX_REQUEST_BYTES) throw new TooLarge("past the bound");
  const body = new Uint8Array(await c.req.arrayBuffer());
  if (body.length > MAX_REQUEST_BYTES) throw new TooLarge("past the bound");
  return body;
}

function response(plain: Plain): Response {
  const empty = plain.status === 204 || plain.status === 304;
  return new Response(empty ? null : plain.body, { status: plain.status, headers: plain.headers });
}

async function recorded(given: Response, lease: Lease, keepHeaders?: string[]): Promise<Response> {
  const headers = new Headers(given.headers);
  const said = headers.get(OUTCOME_HEADER)?.trim().toLowerCase();
  headers.delete(OUTCOME_HEADER);
  const { status } = given;
  const answer = { status, headers: [...headers], body: undefined as Uint8Array | undefined, size: 0 };
  if (given.body && headers.get("content-type")?.toLowerCase().startsWith("text/event-stream")) {
    // A stream goes to its caller as it comes, and isn't kept: it is done when it has ended.
    const whole = () => settled(lease, answer, said, keepHeaders);
    return new Response(watched(given.body, whole, () => broken(lease, said)), { status, headers });
  }
  const body = await gathered(given, () => broken(lease, said));
  const instead = await settled(lease, { ...answer, body: body ?? new Uint8Array(), size: body?.length ?? 0 }, said, keepHeaders);
  return instead ? response(instead) : new Response(body ?? null, { status, headers });
}

/** The whole body; one that breaks off has ended too, or its lease would be renewed for ever. */
async function gathered(given: Response, broke: () => Promise<void>): Promise<Uint8Array<ArrayBuffer> | undefined> {
  try {
    return given.body ? new Uint8Array(await given.arrayBuffer()) : undefined;
  } catch (error) {
    await broke();
    throw error;
  }
}

type Stream = ReadableStream<Uint8Array>;

/** A stream that tells how it ended: whole, or broken off by its source or because its reader left. */
function watched(source: Stream, whole: () => Promise<unknown>, broke: () => Promise<void>): Stream {
  const reader = source.getReader();
  let left = false;
  return new ReadableStream({
    pull: async (controller) => {
      const next = await reader.read().catch(async (error: unknown) => {
        await broke();
        throw error;
      });
      // A source that is told to stop ends as if it were whole.
      if (left) return;
      if (!next.done) {
        controller.enqueue(next.value);
        return;
      }
      await whole();
      controller.close();
    },
    cancel: async (reason) => {
      left = true;
      await Promise.all([reader.cancel(reason), broke()]);
    },
  });
}
