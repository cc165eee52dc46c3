/** NestJS on Express: requests with a key run once. An interceptor, so that guards have decided before it. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { CallHandler, ExecutionContext, NestInterceptor } from "@nestjs/common";
import { type Observable, of } from "rxjs";
import { leaseOf, under } from "./current.js";
import { answerAlone, hold } from "./hold.js";
import { type MiddlewareOptions, admit } from "./http.js";
import { certificateOf, headerOf, parsedBody, target } from "./node.js";

export { leaseOf };

/** A request as Express has it: `user` and the like are what your guards put there. */
export type NestRequest = IncomingMessage & { originalUrl: string; body?: unknown };

/** `app.useGlobalInterceptors(new IdempotencyInterceptor({ semel }))`, or `@UseInterceptors(…)` at a controller. */
export class IdempotencyInterceptor<R extends NestRequest = NestRequest> implements NestInterceptor {
  readonly #options: MiddlewareOptions<R>;

  constructor(options: MiddlewareOptions<R>) {
    this.#options = options;
  }

  async intercept(context: ExecutionContext, next: CallHandler): Promise<Observable<unknown>> {
    if (context.getType() !== "http") return next.handle();
    const http = context.switchToHttp();
    const request = http.getRequest<R>();
    const response = http.getResponse<ServerResponse & { raw?: unknown }>();
    // Fastify's reply has the response inside.
    if (response.raw !== undefined) throw new TypeError("Nest runs on Fastify here: register the plugin of @semel/client/fastify instead");
    const header = headerOf(request);
    const admission = await admit(this.#options, request, request.method ?? "", header, () => ({
      method: request.method ?? "",
      ...target(request.originalUrl),
      header,
      body: parsedBody(request, request.body),
      certificate: certificateOf(request),
    }));
    if ("answer" in admission) {
      answerAlone(response, admission.answer);
      return of(undefined);
    }
    const lease = "lease" in admission ? admission.lease : undefined;
    // What filters make of an error is an answer as well: it is taken where it is sent, and not from the handler.
    if (lease) hold(request, response, lease, this.#options);
    return under(lease, () => next.handle());
  }
}
