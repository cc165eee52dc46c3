/** What Express and Fastify share: requests and answers of Node's own server. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { TLSSocket } from "node:tls";
import { attach } from "./current.js";
import { ABANDONED_MS, type Asked, MAX_REQUEST_BYTES } from "./http.js";
import type { Lease } from "./lease.js";
import { TooLarge } from "./problem.js";

/** The lines of a header, each by itself. */
export const headerOf =
  (request: IncomingMessage): Asked["header"] =>
  (name) =>
    request.headersDistinct[name] ?? [];

/** A digest of the client's certificate, where it has shown one. */
export function certificateOf(request: IncomingMessage): string | undefined {
  const socket = request.socket as Partial<TLSSocket>;
  return socket.getPeerCertificate?.().fingerprint256;
}

/** Path and query, as they were sent. */
export function target(url: string): { path: string; query: string } {
  const at = url.indexOf("?");
  return at < 0 ? { path: url, query: "" } : { path: url.slice(0, at), query: url.slice(at + 1) };
}

/** A body that a parser has read: bytes stay bytes, everything else is compared as JSON. */
export function parsedBody(request: IncomingMessage, body: unknown): Asked["body"] {
  if (Number(request.headers["content-length"] ?? 0) > MAX_REQUEST_BYTES) throw new TooLarge("past the bound");
  if (body instanceof Uint8Array) return body;
  if (typeof body === "string") return new TextEncoder().encode(body);
  if (body !== undefined && body !== null) return { json: body };
  const has = Number(request.headers["content-length"] ?? 0) > 0 || request.headers["transfer-encoding"] !== undefined;
  if (has) throw new Error("the request's body was not read yet: put the body parser before the idempotency middleware");
  return new Uint8Array();
}

/** Begins a run. Where the client has left and the handler never answers, the lease is not renewed for ever. */
export function begin(request: object, response: ServerResponse, lease: Lease): void {
  attach(request, lease);
  lease.start();
  response.once("close", () => {
    setTimeout(() => lease.stop(), ABANDONED_MS).unref();
  });
}

/** The headers that were set, one line each. */
export function headersOf(response: ServerResponse): [string, string][] {
  return Object.entries(response.getHeaders()).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((line): [string, string] => [name, String(line)]),
  );
}

/** Headers by name, each with all its lines: a second line that is set by itself takes the place of the first. */
export function byName(headers: [string, string][]): Map<string, string | string[]> {
  const lines = new Map<string, [string, string[]]>();
  for (const [name, value] of headers) {
    const found = lines.get(name.toLowerCase());
    if (found) found[1].push(value);
    else lines.set(name.toLowerCase(), [name, [value]]);
  }
  return new Map([...lines.values()].map(([name, [first = "", ...rest]]) => [name, rest.length > 0 ? [first, ...rest] : first]));
}

/** Whether an answer is a stream of events, which is never held back. */
export const isEventStream = (contentType: unknown): boolean =>
  typeof contentType === "string" && contentType.toLowerCase().startsWith("text/event-stream");
