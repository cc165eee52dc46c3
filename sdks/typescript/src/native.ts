/** The native module: the engine and the stores, compiled for this platform. Nothing but `open` loads it. */
import { createRequire } from "node:module";
import { OpenError } from "./errors.js";

/** The settings of a store, as the module takes them. */
export interface NativeOptions {
  environment: string;
  secret?: Uint8Array;
  secretId: number;
  encryptionKeys?: string;
}

/** A reply of the API: `headers` has names and values, one after the other. */
export interface NativeReply {
  status: number;
  headers: string[];
  body: Uint8Array;
}

/** What became of an opening, a call or a closing. */
export type NativeEnd = "opened" | "failed" | "replied" | "timed_out" | "closed";

/** Called on the thread that opened the store. */
export type Tell = (ticket: number, end: NativeEnd, reply: NativeReply | null, reason: string | null) => void;

/** A store opened in this process, for one thread of JavaScript. */
export interface NativeStore {
  start(ticket: number, method: string, path: string, body: string | undefined, seconds: number): void;
  cancel(ticket: number): void;
  close(ticket: number, seconds: number): void;
}

interface NativeModule {
  open(ticket: number, url: string, options: NativeOptions, tell: Tell): NativeStore;
}

/** Beside the package's own `package.json`. */
const PLACE = "../semel.node";

/** The module, or an `OpenError` that says what to do without it. */
export function loadNative(place = PLACE): NativeModule {
  try {
    return createRequire(import.meta.url)(place) as NativeModule;
  } catch (cause) {
    const here = `${process.platform} on ${process.arch}`;
    const way = "install a package that was built for this platform, or start `semel serve` and give its URL, http://…, instead";
    throw new OpenError(`this installation has no engine for ${here}, so it opens no store: ${way}`, { cause });
  }
}
