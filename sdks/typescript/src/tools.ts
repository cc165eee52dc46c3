/**
 * Calls of agents' tools. A call's key comes from the arguments that say what is done, the conversation and the tool's
 * name. The other arguments are its payload: where they differ, the model is asked what it means.
 */
import type { ClaimView } from "./api-types.js";
import { canonicalOf } from "./canonical.js";
import { fingerprintOf, hexOf } from "./digest.js";
import { AnswerNotKept, Conflict, SemelError, Unrecorded } from "./errors.js";
import { merged } from "./merge.js";
import { EXACTLY, type Reason, type Refusal, newCallText, reasonOf, refusal } from "./tool-words.js";
import type { Semel, Terms } from "./worker.js";

const DIGEST = 16;

type Members = Record<string, unknown>;

/** A tool, and how its calls are told apart. */
export interface ToolKind {
  semel: Semel;
  name: string;
  terms: Terms;
  /** The arguments that say what is done, of those that the tool has. */
  identity: string[];
  tell: ((refusal: Refusal) => unknown) | undefined;
}

/** One call of a tool. */
export interface ToolCall {
  conversation: string | undefined;
  /** All arguments, without the one that makes it a new call. */
  input: Members;
  /** That argument, as the model gave it. */
  newCall: unknown;
  signal: AbortSignal | undefined;
}

/** The key of a call. The Python package makes the same one. */
export async function callKey(tool: string, conversation: string, identity: Members, newCall: string): Promise<string> {
  return `call-${await fingerprintOf([conversation, tool, identity, newCall])}`;
}

/** What is kept of an argument. The Python package makes the same one. */
export async function fieldDigest(key: string, value: unknown): Promise<string> {
  const bytes = new TextEncoder().encode(`${key}\0${canonicalOf(value)}`);
  return hexOf(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))).slice(0, DIGEST);
}

/** Runs `effect` once for each call of one meaning, and gives what the model reads. */
export async function runTool(kind: ToolKind, call: ToolCall, effect: () => unknown): Promise<unknown> {
  if (call.conversation === undefined || call.conversation === "") {
    // Two conversations would share their calls.
    throw new SemelError("the call has no conversation: `conversation` gave none");
  }
  const newCall = newCallText(call.newCall);
  if (newCall === undefined) return told(kind, "malformed");
  const input = JSON.parse(JSON.stringify(call.input)) as Members;
  const [identity, rest] = split(input, kind.identity);
  const key = await callKey(kind.name, call.conversation, newCall === EXACTLY ? input : identity, newCall);
  const fields: Record<string, string> = {};
  for (const [name, value] of Object.entries(rest)) fields[name] = await fieldDigest(key, value);
  const terms = merged<Terms>({ crash: "hold" }, kind.semel.terms, kind.terms);
  const signal = call.signal ? { signal: call.signal } : {};
  const ran: { value?: unknown; error?: unknown } = {};
  const guarded = async () => {
    try {
      ran.value = await lastOf(effect());
    } catch (error) {
      ran.error = error;
      throw error;
    }
    // What is no JSON is given as it is, so that it counts as done and not kept.
    return isJson(ran.value) ? { fields, result: ran.value ?? null } : ran.value;
  };
  try {
    const found = await kind.semel.run<unknown>({ ...terms, ...signal, scope: kind.name, key, payload: rest }, guarded);
    // What isn't of this form is an operator's answer.
    return (envelopeOf(found.value) ?? { result: found.value }).result;
  } catch (error) {
    const own = "error" in ran && (ran.error === error || (error as Error).cause === ran.error);
    if (own) throw error;
    // It ran, here and now.
    if ("value" in ran && (error instanceof AnswerNotKept || error instanceof Unrecorded)) return ran.value;
    const reason = reasonOf(error);
    if (!reason) throw error;
    const [names, known] = error instanceof Conflict ? differing(fields, await lookedUp(kind, key)) : [[], true];
    return told(kind, reason, names, known);
  }
}

/** What the model reads in place of a result. */
function told(kind: ToolKind, reason: Reason, fields: string[] = [], known = true): unknown {
  const refused = refusal(reason, kind.name, fields, known, "newCall");
  return kind.tell ? kind.tell(refused) : refused.words;
}

function isJson(value: unknown): boolean {
  try {
    return value === undefined || (JSON.stringify(value) as string | undefined) !== undefined;
  } catch {
    return false;
  }
}

function split(input: Members, names: string[]): [Members, Members] {
  const entries = Object.entries(input);
  const chosen = (is: boolean) => Object.fromEntries(entries.filter(([name]) => names.includes(name) === is));
  return [chosen(true), chosen(false)];
}

/** The last value of a tool that gives several. */
async function lastOf(given: unknown): Promise<unknown> {
  if (typeof given !== "object" || given === null || !(Symbol.asyncIterator in given)) return given;
  let last: unknown;
  for await (const value of given as AsyncIterable<unknown>) last = value;
  return last;
}

async function lookedUp(kind: ToolKind, key: string): Promise<ClaimView | undefined> {
  const { tenant } = kind.semel.claimRequest({ scope: kind.name, key });
  try {
    return await kind.semel.api.lookup({ scope: kind.name, key, ...(tenant === undefined ? {} : { tenant }) });
  } catch (error) {
    if (error instanceof SemelError) return undefined;
    throw error;
  }
}

/** The arguments in which the earlier call differs, and whether these are known to be the ones. */
function differing(own: Record<string, string>, view: ClaimView | undefined): [names: string[], known: boolean] {
  const kept = envelopeOf(view?.answer?.body)?.fields;
  const all = [...new Set([...Object.keys(own), ...Object.keys(kept ?? {})])];
  const names = kept ? all.filter((name) => kept[name] !== own[name]) : [];
  return names.length > 0 ? [names, true] : [all, false];
}

function envelopeOf(body: unknown): { fields: Members; result: unknown } | undefined {
  if (typeof body !== "object" || body === null) return undefined;
  const { fields, result, ...more } = body as Members;
  const fits = typeof fields === "object" && fields !== null && result !== undefined && Object.keys(more).length === 0;
  return fits ? { fields: fields as Members, result } : undefined;
}
