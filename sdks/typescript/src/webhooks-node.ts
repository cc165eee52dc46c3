/** Webhooks in Express, Fastify and Node's own server. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { FastifyPluginAsync } from "fastify";
import { SemelError } from "./errors.js";
import { WebhookRefused, answered } from "./webhook-answers.js";
import type { Handle, HandleOptions, Verifier } from "./webhooks.js";

/** A handler for Express, and for Node's own server. */
export type NodeHandler = (request: IncomingMessage & { body?: unknown }, response: ServerResponse, next?: (error: unknown) => void) => void;

/** How an event is handled once, in Express and in Node's own server. */
export interface WebhookOptions extends HandleOptions {
  /** Gets the errors that are answered with 500 where there is no `next`, as in Node's own server; `console.error` unless said. */
  report?: (error: unknown) => void;
}

/**
 * `app.post("/stripe", webhook(verifier, { semel }, handle))`, before `express.json()`: a body that was parsed can't be
 * verified. `express.raw({ type: "*\/*" })` may come before it.
 */
export function webhook(verifier: Verifier, options: WebhookOptions, handle: Handle): NodeHandler {
  const { report = (error: unknown) => console.error(error), ...own } = options;
  return (request, response, next) => {
    answer(verifier, own, handle, request)
      .then((found) => sent(response, found))
      .catch((error: unknown) => {
        if (next) {
          next(withoutStatus(error));
          return;
        }
        if (response.headersSent) response.destroy();
        else response.writeHead(500).end();
        // A body that never came whole is nothing to report: anybody can send one.
        if (request.complete) report(error);
      });
  };
}

/** `app.register(webhookPlugin(verifier, { semel }, handle), { prefix: "/stripe" })`: one endpoint, with the bodies of its own. */
export function webhookPlugin(verifier: Verifier, options: HandleOptions, handle: Handle): FastifyPluginAsync {
  return async (app) => {
    await Promise.resolve();
    app.removeAllContentTypeParsers();
    app.addContentTypeParser("*", { parseAs: "buffer", bodyLimit: verifier.maxBody }, (_, body, done) => done(null, body));
    app.post("/", async (request, reply) => {
      const body = request.body instanceof Uint8Array ? request.body : new Uint8Array();
      const found = await answered(handle, (watched) => verifier.run(linesOf(request.raw), body, options, watched)).catch((error: unknown) => {
        throw withoutStatus(error);
      });
      for (const [name, value] of found.headers) reply.header(name, value);
      return reply.code(found.status).send(Buffer.from(await found.arrayBuffer()));
    });
  };
}

async function answer(verifier: Verifier, options: HandleOptions, handle: Handle, request: IncomingMessage & { body?: unknown }): Promise<Response> {
  if (request.method !== "POST") return new Response("a webhook is a POST", { status: 405, headers: { allow: "POST" } });
  return answered(handle, async (watched) => verifier.run(linesOf(request), await bodyOf(request, verifier.maxBody), options, watched));
}

/** Express and Fastify answer with an error's `status`. In an error of this package, it is what another server answered. */
function withoutStatus(error: unknown): unknown {
  if (!(error instanceof SemelError) || !("status" in error)) return error;
  return new SemelError(`the webhook was not handled: ${error.message}`, { cause: error });
}

/** As they came: Node joins some, and keeps the first of others. */
function linesOf({ rawHeaders }: IncomingMessage): [string, string][] {
  return rawHeaders.flatMap((name, at): [string, string][] => (at % 2 === 0 ? [[name, rawHeaders[at + 1] ?? ""]] : []));
}

async function bodyOf(request: IncomingMessage & { body?: unknown }, most: number): Promise<Uint8Array> {
  if (request.body instanceof Uint8Array) return request.body;
  if (request.readableEnded) throw new TypeError("the webhook's body was parsed before: put the webhook in front of the parser");
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of request) {
    size += (chunk as Uint8Array).length;
    // The rest is read and dropped, so that the answer arrives.
    if (size <= most) chunks.push(chunk as Uint8Array);
    else if (size > 8 * most) break;
  }
  if (size > most) throw new WebhookRefused("too_large");
  return Buffer.concat(chunks);
}

async function sent(response: ServerResponse, found: Response): Promise<void> {
  response.writeHead(found.status, Object.fromEntries(found.headers));
  response.end(Buffer.from(await found.arrayBuffer()));
}
