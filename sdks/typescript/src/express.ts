/** Express middleware: requests with a key run once. Put it after the body parser and whatever authenticates. */
import type { Request, RequestHandler } from "express";
import { leaseOf, under } from "./current.js";
import { hold, sendPlain } from "./hold.js";
import { type MiddlewareOptions, admit } from "./http.js";
import { certificateOf, headerOf, parsedBody, target } from "./node.js";

export { leaseOf };

/** `app.use(express.json(), idempotency({ semel }))`. */
export function idempotency(options: MiddlewareOptions<Request>): RequestHandler {
  return (request, response, next) => {
    const header = headerOf(request);
    const asked = () => ({
      method: request.method,
      ...target(request.originalUrl),
      header,
      body: parsedBody(request, request.body),
      certificate: certificateOf(request),
    });
    admit(options, request, request.method, header, asked).then((admission) => {
      if ("answer" in admission) sendPlain(response, admission.answer);
      else {
        const lease = "lease" in admission ? admission.lease : undefined;
        if (lease) hold(request, response, lease, options);
        under(lease, next);
      }
    }, next);
  };
}
