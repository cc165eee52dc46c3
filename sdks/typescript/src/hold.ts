/** Answers of Node's own server, held back until they are recorded: for Express, and what is made of it. */
import type { ServerResponse } from "node:http";
import { HOLD_MS, type MiddlewareOptions, OUTCOME_HEADER, settled } from "./http.js";
import type { Lease } from "./lease.js";
import { begin, byName, headersOf, isEventStream } from "./node.js";
import type { Plain } from "./problem.js";
import { MAX_BODY_BYTES } from "./outcome.js";

type HoldOptions = Pick<MiddlewareOptions<never>, "keepHeaders" | "log">;

/** Sends an answer of ours. */
export function sendPlain(response: ServerResponse, plain: Plain): void {
  response.statusCode = plain.status;
  for (const [name, value] of byName(plain.headers)) response.setHeader(name, value);
  response.setHeader("Content-Length", plain.body.length);
  response.end(plain.body);
}

type Chunk = string | Uint8Array;
type Done = (error?: Error | null) => void;

/** Holds the answer back until it is recorded. What is too large or a stream goes on as it comes, and isn't kept. */
export function hold(request: object, response: ServerResponse, lease: Lease, options: HoldOptions): void {
  const write = response.write.bind(response) as (chunk: Chunk, done?: Done) => boolean;
  const end = response.end.bind(response) as (chunk?: Chunk) => ServerResponse;
  const writeHead = response.writeHead.bind(response);
  const flushHeaders = response.flushHeaders.bind(response);
  const chunks: Buffer[] = [];
  let size = 0;
  let passing = false;
  let ended = false;
  let said: string | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  begin(request, response, lease);

  const add = (chunk: unknown, encoding: unknown) => {
    if (typeof chunk !== "string" && !(chunk instanceof Uint8Array)) return;
    const bytes = typeof chunk === "string" ? Buffer.from(chunk, encoding as BufferEncoding | undefined) : Buffer.from(chunk);
    size += bytes.length;
    chunks.push(bytes);
    passing ||= size > MAX_BODY_BYTES || isEventStream(response.getHeader("content-type"));
  };
  const outcome = () => {
    const header = response.getHeader(OUTCOME_HEADER);
    said ??= typeof header === "string" ? header.trim().toLowerCase() : undefined;
    if (!response.headersSent) response.removeHeader(OUTCOME_HEADER);
  };
  /** Whether there is room for more: a handler that is told otherwise waits for `drain`. */
  const passOn = (done?: Done): boolean => {
    outcome();
    // Node writes the head by this method when the first chunk comes.
    Object.assign(response, { writeHead });
    const waiting = chunks.splice(0);
    const last = waiting.pop();
    for (const chunk of waiting) write(chunk);
    return last === undefined || write(last, done);
  };
  const tooSlow = () => {
    if (ended || passing) return;
    passing = true;
    passOn();
  };
  const finish = async () => {
    outcome();
    const body = passing ? undefined : Buffer.concat(chunks);
    const answer = { status: response.statusCode, headers: headersOf(response), body, size };
    const restore = headOf(response);
    const instead = await settled(lease, answer, said, options);
    Object.assign(response, { write, end, writeHead, flushHeaders });
    if (!response.headersSent) restore();
    if (instead && !response.headersSent) {
      for (const name of response.getHeaderNames()) response.removeHeader(name);
      sendPlain(response, instead);
      return;
    }
    for (const chunk of chunks.splice(0)) write(chunk);
    end();
  };

  Object.assign(response, {
    writeHead: (status: number, ...rest: unknown[]) => {
      response.statusCode = status;
      const headers = rest.find((given) => typeof given === "object" && given !== null && !Array.isArray(given));
      for (const [name, value] of Object.entries((headers ?? {}) as Record<string, string>)) response.setHeader(name, value);
      return response;
    },
    // By itself it would write a head that isn't there yet. What is held back has none to be seen early.
    flushHeaders: () => {
      if (ended || !isEventStream(response.getHeader("content-type"))) return;
      passing = true;
      passOn();
      flushHeaders();
    },
    write: (chunk: unknown, ...rest: unknown[]) => {
      if (ended) return false;
      if (chunks.length === 0 && !passing) timer = setTimeout(tooSlow, HOLD_MS);
      add(chunk, rest[0]);
      const done = rest.find((given) => typeof given === "function") as Done | undefined;
      if (passing) return passOn(done);
      if (done) process.nextTick(done);
      return true;
    },
    end: (chunk: unknown, ...rest: unknown[]) => {
      // A handler that answers and then throws: the error handler finds no answer sent, and would give another.
      if (ended) return response;
      ended = true;
      clearTimeout(timer);
      const done = [chunk, ...rest].find((given) => typeof given === "function");
      if (done) response.once("finish", done as () => void);
      if (typeof chunk !== "function") add(chunk, rest[0]);
      finish().catch((error: unknown) => response.destroy(error as Error));
      return response;
    },
  });
}

/** Keeps status and headers as they are now; gives what puts them back. */
function headOf(response: ServerResponse): () => void {
  const { statusCode, statusMessage } = response;
  const headers = new Map(Object.entries(response.getHeaders()));
  return () => {
    Object.assign(response, { statusCode, statusMessage });
    for (const name of response.getHeaderNames()) if (!headers.has(name)) response.removeHeader(name);
    // Only what was changed: names are given in lower case here, and those that were set otherwise stay so.
    for (const [name, value = ""] of headers) if (response.getHeader(name) !== value) response.setHeader(name, value);
  };
}

/** Sends an answer of ours now; whatever the framework sends after it goes nowhere. */
export function answerAlone(response: ServerResponse, plain: Plain): void {
  sendPlain(response, plain);
  const same = () => response;
  const nothing = () => undefined;
  const said = { writeHead: same, setHeader: same, appendHeader: same, removeHeader: nothing, flushHeaders: nothing };
  Object.assign(response, { ...said, write: () => true, end: same });
}
