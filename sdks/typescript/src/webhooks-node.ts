/** Webhooks in Express, Fastify and Node's own server. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { FastifyPluginAsync } from "fastify";
import { WebhookRefused, responseOf, responseOfError } from "./webhook-answers.js";
import type { Handle, HandleOptions, Verifier } from "./webhooks.js";

/** A handler for Express, and for Node's own server. */
export type NodeHandler = (request: IncomingMessage & { body?: unknown }, response: ServerResponse, next?: (error: unknown) => void) => void;

/**
 * `app.post("/stripe", webhook(verifier, { semel }, handle))`, before `express.json()`: a body that was parsed can't be
 * verified. `express.raw({ type: "*\/*" })` may come before it.
 */
export function webhook(verifier: Verifier, options: HandleOptions, handle: Handle): NodeHandler {
  return (request, response, next) => {
    answer(verifier, options, handle, request)
      .then((found) => sent(response, found))
      .catch((error: unknown) => {
        if (next) next(error);
        else response.writeHead(500).end();
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
      const found = await answered(() => verifier.run(linesOf(request.raw), body, options, handle));
      for (const [name, value] of found.headers) reply.header(name, value);
      return reply.code(found.status).send(Buffer.from(await found.arrayBuffer()));
    });
  };
}

async function answer(verifier: Verifier, options: HandleOptions, handle: Handle, request: IncomingMessage & { body?: unknown }): Promise<Response> {
  if (request.method !== "POST") return new Response("a webhook is a POST", { status: 405, headers: { allow: "POST" } });
  return answered(async () => verifier.run(linesOf(request), await bodyOf(request, verifier.maxBody), options, handle));
}

async function answered(run: () => Promise<{ value: unknown }>): Promise<Response> {
  try {
    return responseOf((await run()).value);
  } catch (error) {
    return responseOfError(error);
  }
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
