/** What a caller gets: the answer, and what is known about it. */
import type { ClaimView } from "./api-types.js";
import { memberText } from "./canonical.js";
import { Conflict, InDoubt, ProblemError } from "./errors.js";
import { type Received, problemOf, textOf } from "./retry.js";

/** An answer that won't change by asking again: 2xx, 3xx, or a final 4xx. */
export class Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Uint8Array;
  // Private, so that printing an answer doesn't print the key.
  readonly #key: string | undefined;

  constructor(
    received: Received,
    key: string | undefined,
    /** How many it took. */
    readonly attempts: number,
  ) {
    this.status = received.status;
    this.headers = received.headers;
    this.body = received.body;
    this.#key = key;
  }

  /** Under which it was asked for: to be kept with the order. Empty where the request changes nothing. */
  get key(): string {
    return this.#key ?? "";
  }

  /** Whether the status is 2xx. */
  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  /** Whether an earlier attempt did it, and this is its answer. */
  get replayed(): boolean {
    return this.headers.get("idempotent-replayed") === "true";
  }

  /** When it was first asked for, where this is a replay. */
  get originalTime(): string | undefined {
    return this.headers.get("x-original-request-time") ?? undefined;
  }

  /** `false` where it was done before and its body was too large to keep. */
  get bodyKept(): boolean {
    return !this.headers.has("idempotent-not-kept");
  }

  /** The body, as text. */
  text(): string {
    return new TextDecoder().decode(this.body);
  }

  /** The body, as JSON. The type is what you say it is: nothing checks it. */
  // eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- as `fetch` users write it
  json<T = unknown>(): T {
    return JSON.parse(this.text()) as T;
  }
}

/** What happened is not known, and asking again won't tell. */
const IN_DOUBT = new Set(["idempotency_in_doubt", "idempotency_record_unreadable"]);

/** The error for a refusal. */
export function problemError(received: Received): ProblemError {
  const problem = problemOf(received);
  if (problem.claim) keepBytes(problem.claim, textOf(received), ["claim"]);
  if (problem.code === "idempotency_conflict") return new Conflict(received.status, problem);
  if (IN_DOUBT.has(problem.code ?? "")) return new InDoubt(received.status, problem);
  return new ProblemError(received.status, problem);
}

/** The answer, or an error where Semel itself refused. What the service says, whatever it is, is an answer. */
export function answerOf(received: Received, key: string | undefined, attempts: number): Answer {
  const { code } = problemOf(received);
  if (received.status >= 400 && code?.startsWith("idempotency_")) throw problemError(received);
  return new Answer(received, key, attempts);
}

/** Puts the body's own bytes beside its value, as `body_base64`: a value has lost how it was written. */
export function keepBytes(view: ClaimView, text: string, path: readonly string[] = []): void {
  if (view.answer === undefined || !("body" in view.answer)) return;
  const raw = memberText(text, [...path, "answer", "body"]);
  if (raw !== undefined) view.answer.body_base64 = toBase64(new TextEncoder().encode(raw));
}

/** Bytes in base64. */
export function toBase64(bytes: Uint8Array): string {
  let binary = "";
  for (let at = 0; at < bytes.length; at += 8192) {
    binary += String.fromCharCode(...bytes.subarray(at, at + 8192));
  }
  return btoa(binary);
}

/** And back. */
export const fromBase64 = (text: string): Uint8Array =>
  Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
