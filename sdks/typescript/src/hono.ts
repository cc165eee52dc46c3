/** Hono middleware: requests with a key run once. Put it after whatever authenticates. */
import type { Context, MiddlewareHandler } from "hono";
import { type Asked, MAX_REQUEST_BYTES, type MiddlewareOptions, OUTCOME_HEADER, type Plain, TooLarge, admit, settled } from "./http.js";
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
      const value = c.req.header(name);
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
      await lease.settle("retry").finally(() => lease.stop());
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
    const done = new TransformStream<Uint8Array, Uint8Array>({
      flush: async () => {
        await settled(lease, answer, said, keepHeaders);
      },
    });
    return new Response(given.body.pipeThrough(done), { status, headers });
  }
  const body = given.body ? new Uint8Array(await given.arrayBuffer()) : undefined;
  const instead = await settled(lease, { ...answer, body: body ?? new Uint8Array(), size: body?.length ?? 0 }, said, keepHeaders);
  return instead ? response(instead) : new Response(body ?? null, { status, headers });
}
