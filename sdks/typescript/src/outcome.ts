/** What became of an effect, in the server's words and back: what is kept of a value or an error, and what a record says. */
import type { AnswerInput, ClaimView, Outcome } from "./api-types.js";
import { fromBase64 } from "./answer.js";
import { AnswerNotKept, EffectFailed, Final, NoEffect, SemelError, Unknown } from "./errors.js";

/** Larger answers are not sent: the server would not keep them. */
export const MAX_BODY_BYTES = 1024 * 1024;

export type ErrorClass = abstract new (...args: never[]) => Error;

/** What the errors of an effect mean. */
export interface ErrorTerms {
  /** What an error means that nobody has named: `retry` leaves it to the crash policy, the others decide. */
  onError?: "retry" | "doubt" | "release";
  /** Errors that are failures for good: kept, and given to everybody who asks again. */
  final?: ErrorClass[];
  /** Errors by which nothing happened: the key is free again. */
  noEffect?: ErrorClass[];
}

/** What an earlier run returned; throws what it threw. */
export function valueOf(view: ClaimView): unknown {
  const answer = view.answer ?? {};
  if (view.status === "failed") throw new EffectFailed(answer.body, true);
  if (view.status !== "completed") throw new SemelError(`no answer yet: ${view.status}`);
  if (answer.body_omitted_bytes !== undefined) throw new AnswerNotKept(answer.body_omitted_bytes);
  if (answer.body_base64 !== undefined && !("body" in answer)) return jsonOf(answer.body_base64);
  // An effect that returned nothing kept nothing.
  return answer.body ?? undefined;
}

/** JSON with white space around it, as an operator's file has it, comes as the bytes that it is. */
function jsonOf(base64: string): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(fromBase64(base64)));
  } catch {
    throw new SemelError("the answer isn't JSON: another door of this scope wrote it");
  }
}

/** The answer to keep, and the value as everybody will read it, the first caller too. */
export function answerInput(value: unknown): { answer: AnswerInput; plain: unknown } {
  // What has no JSON form, such as a function, is undefined here, whatever its type says.
  const text = JSON.stringify(value) as string | undefined;
  if (text === undefined) {
    if (value === undefined) return { answer: {}, plain: undefined };
    throw new TypeError("the effect returned what is no JSON");
  }
  const size = new TextEncoder().encode(text).length;
  const plain: unknown = JSON.parse(text);
  return { answer: size > MAX_BODY_BYTES ? { body_omitted_bytes: size } : { body: plain }, plain: plain ?? undefined };
}

/** What an error says about the effect. */
export function outcomeOf(error: unknown, terms: ErrorTerms): { outcome: Outcome; answer?: AnswerInput } {
  const is = (classes: ErrorClass[] = []) => classes.some((kind) => error instanceof kind);
  if (error instanceof NoEffect || is(terms.noEffect)) return { outcome: "release" };
  if (error instanceof Unknown) return { outcome: "doubt" };
  if (error instanceof Final) return { outcome: "fail", answer: finalAnswer(error) };
  if (is(terms.final)) {
    const { name, message } = error as Error;
    return { outcome: "fail", answer: { body: { error: name, message: message.slice(0, 4096) } } };
  }
  return { outcome: terms.onError ?? "retry" };
}

/** One that has no JSON form failed for good all the same, and must not run again. */
function finalAnswer(error: Final): AnswerInput {
  try {
    return answerInput(error.answer).answer;
  } catch {
    return { body_omitted_bytes: 0 };
  }
}
