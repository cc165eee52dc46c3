/** What a model reads where a tool's call did nothing, and why. The Python package says the same. */
import { Conflict, GaveUp, InDoubt, answerIsGone } from "./errors.js";

/** Why a call did nothing. */
export type Reason = "reworded" | "in_doubt" | "running" | "not_kept" | "malformed";

/** A call that did nothing. */
export interface Refusal {
  reason: Reason;
  /** The names of the arguments that differ, where it was reworded; all candidates, where they aren't known. */
  fields: string[];
  /** What the model reads. */
  words: string;
}

/** What a model is told of the argument that makes a call a new one. */
export const NEW_CALL =
  "Leave this out. Only to make a call again on purpose, although an earlier call with the same meaning was made: " +
  "a short text of your choice that you have not used before. Repeat the text when you repeat that call.";

const RUNNING = "idempotency_in_flight";

/** In place of a text, as models say it to the gateway: a new call with exactly these arguments. */
export const EXACTLY = "true";

/** What the argument for a new call says: an empty text where it says nothing, `undefined` where it can't be read. */
export function newCallText(given: unknown): string | undefined {
  if (given === undefined || given === null || given === false || given === "false") return "";
  if (given === true) return EXACTLY;
  return typeof given === "string" ? given : undefined;
}

/** The words for a model. `known` says whether exactly these fields differ, or at least one of them. */
export function refusal(reason: Reason, tool: string, fields: string[], known: boolean, newCall: string): Refusal {
  return { reason, fields, words: wordsOf(reason, tool, known || fields.length === 1 ? "" : "at least one of ", fields, newCall) };
}

function wordsOf(reason: Reason, tool: string, which: string, fields: string[], newCall: string): string {
  switch (reason) {
    case "reworded":
      return (
        `Nothing was done: this call of ${tool} is like an earlier one in this conversation, and differs in ` +
        `${which}${fields.join(", ")}. To get the result of the earlier call, repeat it with the same arguments. If you ` +
        `mean a new call, add ${newCall} with a short text that you have not used before.`
      );
    case "in_doubt":
      return (
        `It is not known whether this call of ${tool} took effect: an earlier attempt ended without a result. Nothing ` +
        "was done now. Do not call it again. Find out whether it took effect, or tell the user."
      );
    case "running":
      return (
        `The same call of ${tool} is still running, and nothing else was started. To get its result, make the call ` +
        "again later with the same arguments."
      );
    case "not_kept":
      return `This call of ${tool} was made before, and its result is not available. Nothing was done now. Do not call it again.`;
    case "malformed":
      return (
        `Nothing was done: for a call of ${tool}, ${newCall} is a short text that you have not used before, or true. ` +
        "Leave it out unless you mean to make a call again on purpose."
      );
  }
}

/** What an error of this package means for a model; nothing where it is the program's to handle. */
export function reasonOf(error: unknown): Reason | undefined {
  if (error instanceof Conflict) return "reworded";
  if (error instanceof InDoubt) return "in_doubt";
  if (answerIsGone(error)) return "not_kept";
  return error instanceof GaveUp && error.problem?.code === RUNNING ? "running" : undefined;
}
