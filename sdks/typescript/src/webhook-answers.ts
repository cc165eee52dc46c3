/** What is answered to a webhook. */
import { EffectFailed, GaveUp, ProblemError, SemelError, Unrecorded, answerIsGone } from "./errors.js";

/** Why a webhook isn't believed. */
export type RefusedReason = "missing" | "malformed" | "signature" | "expired" | "too_large" | "no_id";

/**
 * A webhook that isn't believed, by its `reason`: a header is `missing` or `malformed`, the `signature` is wrong, its time is
 * too far off (`expired`), the body is `too_large`, or there is `no_id` of the event.
 */
export class WebhookRefused extends SemelError {
  /** What to answer. */
  readonly status: number;

  constructor(readonly reason: RefusedReason) {
    super(`the webhook is refused: ${reason}`);
    this.status = reason === "too_large" ? 413 : reason === "signature" || reason === "expired" ? 401 : 400;
  }
}

/**
 * The answer to a delivery. `run` handles the event by the function that it gets in place of `handle`. Throws what the handler
 * threw, although it may be an error of this package's, of a call inside it: that says nothing of the event.
 */
export async function answered<E>(
  handle: (event: E) => unknown,
  run: (handle: (event: E) => Promise<unknown>) => Promise<{ value: unknown }>,
): Promise<Response> {
  const own: { error?: unknown } = {};
  const watched = async (event: E) => {
    try {
      return await handle(event);
    } catch (error) {
      own.error = error;
      throw error;
    }
  };
  try {
    return responseOf((await run(watched)).value);
  } catch (error) {
    if ("error" in own && own.error === error) throw error;
    return responseOfError(error);
  }
}

/** What a handler's result is as an answer. */
function responseOf(value: unknown): Response {
  if (value === undefined || value === null) return new Response(null, { status: 200 });
  return typeof value === "string" ? new Response(value) : Response.json(value);
}

/** What is answered where there is no result: what isn't 2xx is delivered again. Throws what is the program's to mend. */
function responseOfError(error: unknown): Response {
  if (error instanceof WebhookRefused) return new Response(error.message, { status: error.status });
  // It was handled, or no further delivery would change that it can't be.
  if (error instanceof EffectFailed || error instanceof Unrecorded || answerIsGone(error)) return responseOf(undefined);
  const problem = error instanceof ProblemError || error instanceof GaveUp ? error.problem : undefined;
  if (problem?.code?.startsWith("idempotency_") && problem.status !== undefined) {
    return Response.json(problem, { status: problem.status, headers: { "content-type": "application/problem+json" } });
  }
  if (error instanceof GaveUp) return new Response("try again later", { status: 503, headers: { "retry-after": "1" } });
  throw error;
}
