/**
 * HTTP requests as operations, without I/O: what counts, what an answer means, what is kept of it. The rules are those of
 * the sidecar's HTTP layer (`docs/http.md`).
 */
import { fromBase64, toBase64 } from "./answer.js";
import type { AnswerInput, ClaimView, Outcome } from "./api-types.js";
import { ALWAYS, type Counted, type Credentials, asksToSignIn, counted, hasCredentials } from "./credentials.js";
import { type Part, digestOf, principalKey } from "./digest.js";
import { KeyInvalid, ProblemError, SemelError } from "./errors.js";
import { keyOfHeader } from "./keys.js";
import type { Lease } from "./lease.js";
import { merged } from "./merge.js";
import { AGAIN, type Log, type Plain, logged, ofError, problem, say } from "./problem.js";
import { MAX_BODY_BYTES } from "./outcome.js";
import type { Operation, Semel, Terms } from "./worker.js";

export const OUTCOME_HEADER = "semel-outcome";
export const MAX_REQUEST_BYTES = 2 * 1024 * 1024;
/** So long an answer is held back until it is whole. */
export const HOLD_MS = 5000;
/** A handler whose client has left and that doesn't answer keeps its lease for so long. */
export const ABANDONED_MS = 600_000;
const KEY_HEADERS = ["idempotency-key", "x-idempotency-key"];
const METHOD_OVERRIDES = ["x-http-method-override", "x-http-method", "x-method-override"];
const NOT_NOW = new Set([401, 407, 408, 409, 425, 429]);
/** What a principal's own key looks like. */
const OWNED = /^p-[0-9a-f]{64}$/;
/** Leases of requests of which nothing says whose they are. */
const ANONYMOUS = new WeakSet<Lease>();
const KEPT = new Set(
  "content-type content-encoding content-language content-disposition content-location etag last-modified link location vary content-security-policy referrer-policy strict-transport-security x-content-type-options x-frame-options cross-origin-resource-policy".split(
    " ",
  ),
);

/** Settings that all middlewares share. `R` is the framework's request. */
export interface MiddlewareOptions<R> {
  semel: Semel;
  /** What is done, for the server's policies and figures. */
  scope?: string | ((request: R) => string);
  /** Whose request it is; where it isn't said, the credentials count as payload. */
  principal?: (request: R) => string | undefined;
  methods?: string[];
  /** Refuse requests without a key. */
  requireKey?: boolean;
  terms?: Terms;
  /** Whether the host that was asked counts as payload, as it does unless said; not for services that go by several names. */
  authority?: boolean;
  /** Names of further headers to keep. */
  keepHeaders?: string[];
  /** What counts as credentials where `principal` says nothing. */
  credentials?: Credentials;
  /** Takes what an operator should know, such as an API that refuses this process; `console.error` unless said. */
  log?: Log;
}

/** A request, as all frameworks have it. */
export interface Asked {
  method: string;
  path: string;
  query: string;
  /** All lines of a header, by its name in lower case. */
  header: (name: string) => string[];
  /** As bytes, or parsed by the framework. */
  body: Uint8Array | { json: unknown };
  /** A digest of the client's certificate, where it has shown one. */
  certificate?: string | undefined;
}

/** What the middleware does with a request: passes it, answers it, or lets it run under a lease. */
export type Admission = { pass: true } | { answer: Plain } | { lease: Lease };

function requestFingerprint(asked: Asked, withHost: boolean, credentials: Counted): Promise<string> {
  const host = withHost ? (asked.header("host")[0] ?? "").trim().toLowerCase() : "";
  const full = asked.header("content-type")[0] ?? "";
  const essence = full.split(";")[0]?.trim().toLowerCase() ?? "";
  const isJson = essence === "application/json" || essence === "text/json" || essence.endsWith("+json");
  // JSON has no parameters that matter; those of other types do.
  const media = isJson || !full.includes(";") ? essence : full;
  const parts: Part[] = [asked.method.toUpperCase(), host, asked.path, asked.query, media].map((data) => ({ kind: "raw", data }));
  if (!(asked.body instanceof Uint8Array)) parts.push({ kind: "json", data: JSON.stringify(asked.body.json) });
  else parts.push({ kind: isJson && asked.body.length > 0 ? "json" : "raw", data: asked.body });
  for (const name of ["content-encoding", ...METHOD_OVERRIDES]) {
    const lines = asked.header(name);
    if (lines.length > 0) parts.push({ kind: "raw", data: name }, { kind: "raw", data: lines.join("\n") });
  }
  for (const [at, [name, values]] of credentials.entries()) {
    if (at >= ALWAYS) parts.push({ kind: "raw", data: name });
    parts.push({ kind: "raw", data: values.join("\n") });
  }
  return digestOf(parts);
}

/** The key to claim. What looks like a principal's own is nobody else's to use. */
async function ownedKey(principal: string | undefined, key: string): Promise<string> {
  if (principal) return principalKey(principal, key);
  if (OWNED.test(key)) throw new KeyInvalid("character");
  return key;
}

/** Decides about a request. `asked` is called only where its body is needed. */
export async function admit<R>(
  options: MiddlewareOptions<R>,
  request: R,
  method: string,
  header: Asked["header"],
  asked: () => Asked | Promise<Asked>,
): Promise<Admission> {
  const methods = options.methods ?? ["POST", "PATCH"];
  if (!methods.includes(method.toUpperCase())) return { pass: true };
  try {
    const key = keyOfHeader(KEY_HEADERS.flatMap(header));
    if (key === undefined) {
      if (!options.requireKey) return { pass: true };
      return { answer: problem(400, "idempotency_key_required", "This operation needs an Idempotency-Key") };
    }
    const principal = options.principal?.(request);
    const { semel, scope = "http" } = options;
    const own = { scope: typeof scope === "string" ? scope : scope(request), key: await ownedKey(principal, key) };
    const operation = merged<Operation>(own, semel.terms, options.terms);
    const given = await asked();
    const found = principal ? [] : counted(options.credentials ?? {}, header, given.certificate);
    const digest = await requestFingerprint(given, options.authority ?? true, found);
    const { view, lease } = await semel.admit(semel.claimRequest(operation, digest));
    if (view.status === "unprotected") return { pass: true };
    if (lease && !principal && !hasCredentials(found)) ANONYMOUS.add(lease);
    return lease ? { lease } : { answer: replayed(view) };
  } catch (error) {
    return { answer: ofError(error, options.log) };
  }
}

/** A handler's answer; without a body where that went on as it came. */
export interface Answered {
  status: number;
  headers: [string, string][];
  body: Uint8Array | undefined;
  size: number;
}

/** Records a handler's answer; gives the one to send in its place, where that isn't the handler's. */
export async function settled(
  lease: Lease,
  answer: Answered,
  said: string | undefined,
  options: Pick<MiddlewareOptions<never>, "keepHeaders" | "log"> = {},
): Promise<Plain | undefined> {
  const location = answer.headers.find(([name]) => name.toLowerCase() === "location")?.[1];
  const outcome = outcomeOfStatus(answer.status, said, ANONYMOUS.has(lease), location);
  const keeps = outcome === "complete" || outcome === "fail";
  try {
    await lease.settle(outcome, keeps ? kept(answer, options.keepHeaders ?? []) : undefined);
    return undefined;
  } catch (error) {
    if (!(error instanceof SemelError)) throw error;
    return keeps ? unsettled(error, options.log) : undefined;
  } finally {
    lease.stop();
  }
}

/** Records that an answer broke off: as an error of the service, unless the handler said what became of it. */
export async function broken(lease: Lease, said: string | undefined): Promise<void> {
  await settled(lease, { status: 500, headers: [], body: undefined, size: 0 }, said);
}

/** What an answer says about the effect. One that asks for credentials is not kept for a request that had none. */
export function outcomeOfStatus(status: number, said: string | undefined, anonymous: boolean, location: string | undefined): Outcome {
  if (said === undefined && anonymous && asksToSignIn(status, location)) return "release";
  if (said === "no-effect" || (said === undefined && NOT_NOW.has(status))) return "release";
  if (said === "unknown") return "doubt";
  if (status >= 500) return "retry";
  return status >= 400 ? "fail" : "complete";
}

function kept(answer: Answered, more: string[]): AnswerInput {
  const allowed = new Set([...KEPT, ...more.map((name) => name.toLowerCase())]);
  // A header that the record can't hold is left out, rather than the whole answer.
  const headers = answer.headers
    .filter(([name, value]) => allowed.has(name.toLowerCase()) && value.length <= 4096 && /^[ -~]*$/.test(value))
    .map(([name, value]) => ({ name, value }))
    .slice(0, 64);
  const { status, body, size } = answer;
  if (body === undefined || size > MAX_BODY_BYTES) return { status, headers, body_omitted_bytes: size };
  return { status, headers, body_base64: toBase64(body) };
}

/** The answer of an earlier run, again. */
export function replayed(view: ClaimView): Plain {
  const answer = view.answer ?? {};
  if (answer.status === undefined) {
    return problem(500, "idempotency_answer_unreadable", "The stored answer is none of HTTP");
  }
  const { status } = answer;
  const headers = (answer.headers ?? []).map((header): [string, string] => [header.name, header.value]);
  headers.push(["Idempotent-Replayed", "true"], ["Cache-Control", "no-store"]);
  if (view.original_time !== undefined) headers.push(["X-Original-Request-Time", view.original_time]);
  if (answer.body_omitted_bytes !== undefined) {
    const told = problem(status, "idempotency_body_not_kept", "Done before; the answer's body was not kept");
    const own = headers.filter(([name]) => name.toLowerCase() !== "content-type");
    return { status, headers: [...own, ["Idempotent-Not-Kept", "body"], ...told.headers.slice(0, 1)], body: told.body };
  }
  return { status, headers, body: fromBase64(answer.body_base64 ?? "") };
}

function unsettled(error: SemelError, log: Log = logged): Plain {
  if (error instanceof ProblemError && error.code === "idempotency_lease_not_held") {
    if (error.problem.claim) return replayed(error.problem.claim);
    return problem(503, "idempotency_lease_lost", "Another took the request over", AGAIN);
  }
  say(log, `semel: a handler ran, and its answer could not be recorded (${error.name})`);
  return problem(503, "idempotency_unrecorded", "The outcome could not be recorded", AGAIN);
}
