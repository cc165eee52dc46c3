/** Fastify plugin: requests with a key run once. Register it after whatever authenticates. */
import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from "fastify";
import { leaseOf } from "./current.js";
import { type MiddlewareOptions, OUTCOME_HEADER, admit, broken, settled } from "./http.js";
import { begin, byName, certificateOf, headerOf, isEventStream, parsedBody, target } from "./node.js";

export { leaseOf };

const plugin: FastifyPluginAsync<MiddlewareOptions<FastifyRequest>> = async (app, options) => {
  // With what their handlers said became of them.
  const streams = new WeakMap<FastifyRequest, string | undefined>();
  await Promise.resolve();

  app.addHook("preHandler", async (request, reply) => {
    const header = headerOf(request.raw);
    const asked = () => ({
      method: request.method,
      ...target(request.originalUrl),
      header,
      body: parsedBody(request.raw, request.body),
      certificate: certificateOf(request.raw),
    });
    const admission = await admit(options, request, request.method, header, asked);
    if ("lease" in admission) begin(request, reply.raw, admission.lease);
    if (!("answer" in admission)) return undefined;
    const { status, headers, body } = admission.answer;
    for (const [name, value] of byName(headers)) reply.header(name, value);
    return reply.code(status).send(Buffer.from(body));
  });

  app.addHook("onSend", async (request, reply, payload) => {
    const lease = leaseOf(request);
    if (!lease) return payload;
    // A stream that fails before its first byte comes here again, as an error.
    const said = outcome(reply) ?? streams.get(request);
    streams.delete(request);
    const body = bytesOf(payload);
    if (body === undefined || isEventStream(reply.getHeader("content-type"))) {
      streams.set(request, said);
      // Fastify tells only of answers that came to their end.
      reply.raw.once("close", () => {
        if (!reply.raw.writableFinished) broken(lease, said).catch((error: unknown) => request.log.error(error));
      });
      return payload;
    }
    const answer = { status: reply.statusCode, headers: headers(reply), body, size: body.length };
    const instead = await settled(lease, answer, said, options);
    if (!instead) return payload;
    for (const name of Object.keys(reply.getHeaders())) reply.removeHeader(name);
    for (const [name, value] of byName(instead.headers)) reply.header(name, value);
    reply.code(instead.status).header("content-length", instead.body.length);
    return Buffer.from(instead.body);
  });

  // A stream goes to its caller as it comes, and isn't kept: it is done when it has ended.
  app.addHook("onResponse", async (request, reply) => {
    const lease = leaseOf(request);
    if (!lease || !streams.has(request) || !reply.raw.writableFinished) return;
    const answer = { status: reply.statusCode, headers: headers(reply), body: undefined, size: 0 };
    await settled(lease, answer, streams.get(request), options);
  });
};

function outcome(reply: FastifyReply): string | undefined {
  const header = reply.getHeader(OUTCOME_HEADER);
  if (header === undefined) return undefined;
  reply.removeHeader(OUTCOME_HEADER);
  return String(header).trim().toLowerCase();
}

function headers(reply: FastifyReply): [string, string][] {
  return Object.entries(reply.getHeaders()).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((line): [string, string] => [name, String(line)]),
  );
}

function bytesOf(payload: unknown): Uint8Array | undefined {
  if (payload === null || payload === undefined) return new Uint8Array();
  if (typeof payload === "string") return Buffer.from(payload);
  return payload instanceof Uint8Array ? payload : undefined;
}

/** `app.register(idempotency, { semel })`. */
// Without the first mark, Fastify would keep the hooks to the plugin's own routes; by the others it refuses versions that don't fit.
export const idempotency = Object.assign(plugin, {
  [Symbol.for("skip-override")]: true,
  [Symbol.for("fastify.display-name")]: "@semel/client",
  [Symbol.for("plugin-meta")]: { name: "@semel/client", fastify: ">=5" },
});
