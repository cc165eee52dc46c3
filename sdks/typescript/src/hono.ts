/** Hono middleware: requests with a key run once. Put it after whatever authenticates. */
import type { Context, MiddlewareHandler } from "hono";
import type { MiddlewareOptions } from "./http.js";
import type { Lease } from "./lease.js";
import { type WaitUntil, checkSize, guarded } from "./web.js";

/** Where a handler finds its lease: `c.get("semelLease")`. */
export interface Variables {
  semelLease: Lease | undefined;
}

type C = Context<{ Variables: Variables }>;

/** `app.use(idempotency({ semel }))`. */
export function idempotency(options: MiddlewareOptions<C>): MiddlewareHandler<{ Variables: Variables }> {
  return async (c: C, next) => {
    const run = async (lease: Lease | undefined): Promise<Response> => {
      if (lease) c.set("semelLease", lease);
      await next();
      return c.res;
    };
    const work = guarded(options, c, { request: c.req.raw, body: () => bodyOf(c), run });
    waitUntilOf(c)?.(work.catch(() => undefined));
    const answer = await work;
    if (answer === c.res) return;
    // Hono adds the headers of the answer before to the next one, unless there is none.
    c.res = undefined;
    c.res = answer;
  };
}

/** By Hono, which keeps it for the handler. */
async function bodyOf(c: C): Promise<Uint8Array> {
  checkSize(Number(c.req.header("content-length") ?? 0));
  const body = new Uint8Array(await c.req.arrayBuffer());
  checkSize(body.length);
  return body;
}

/** Only Workers have a context, and Hono throws where there is none. */
function waitUntilOf(c: C): WaitUntil | undefined {
  try {
    const context = c.executionCtx;
    return (work) => context.waitUntil(work);
  } catch {
    return undefined;
  }
}
