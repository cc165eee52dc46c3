/** The engine in this process instead of a sidecar: the same requests, the same answers, no socket. */
import type { Transport } from "./api.js";
import { OpenError, SemelError } from "./errors.js";
import { type NativeEnd, type NativeOptions, type NativeReply, type NativeStore, loadNative } from "./native.js";
import type { Received } from "./retry.js";

/** How long closing waits for settlements of callers that are gone. */
const CLOSING_S = 2;
/** The longest pause that a timer takes. */
const FOREVER_MS = 2 ** 31 - 1;

interface End {
  end: NativeEnd;
  reply: NativeReply | null;
  reason: string | null;
}

interface Waiting {
  resolve: (end: End) => void;
  reject: (error: Error) => void;
}

/**
 * What waits for the native module. While anything does, the process stays alive; an open store alone doesn't keep it so.
 * The module refers to this and not to the store, so that a store that nobody has any more is freed.
 */
class Calls {
  readonly #waiting = new Map<number, Waiting>();
  readonly #alive = setInterval(() => undefined, FOREVER_MS).unref();
  #last = 0;

  /** Begins something under a new ticket, and waits for its end. Where the signal fires first, `cancel` is called. */
  begin(work: (ticket: number) => void, signal?: AbortSignal, cancel?: (ticket: number) => void): Promise<End> {
    const ticket = this.#next();
    return new Promise<End>((resolve, reject) => {
      const stop = () => {
        this.#take(ticket);
        cancel?.(ticket);
        reject(signal?.reason as Error);
      };
      const heard = () => signal?.removeEventListener("abort", stop);
      if (this.#waiting.size === 0) this.#alive.ref();
      this.#waiting.set(ticket, {
        resolve: (end) => {
          heard();
          resolve(end);
        },
        reject: (error) => {
          heard();
          reject(error);
        },
      });
      signal?.addEventListener("abort", stop, { once: true });
      try {
        work(ticket);
      } catch (error) {
        this.#take(ticket)?.reject(error as Error);
      }
    });
  }

  /** What the native module calls. */
  readonly tell = (ticket: number, end: NativeEnd, reply: NativeReply | null, reason: string | null): void => {
    this.#take(ticket)?.resolve({ end, reply, reason });
  };

  /** Ends all that waits. */
  endAll(error: () => Error): void {
    for (const ticket of [...this.#waiting.keys()]) this.#take(ticket)?.reject(error());
  }

  /** Nothing will wait any more. */
  end(): void {
    clearInterval(this.#alive);
  }

  /** A number of 32 bits that nothing waits under. */
  #next(): number {
    do this.#last = (this.#last + 1) >>> 0;
    while (this.#waiting.has(this.#last));
    return this.#last;
  }

  #take(ticket: number): Waiting | undefined {
    const found = this.#waiting.get(ticket);
    if (this.#waiting.delete(ticket) && this.#waiting.size === 0) this.#alive.unref();
    return found;
  }
}

const closed = () => new SemelError("the store was closed");

/** A store that this thread of JavaScript opens with its first call, or with `connect`. */
export class EmbeddedStore implements Transport {
  readonly #url: string;
  readonly #options: NativeOptions;
  readonly #calls = new Calls();
  #opening: Promise<NativeStore> | undefined;
  #native: NativeStore | undefined;
  #closing: Promise<void> | undefined;

  constructor(url: string, options: NativeOptions) {
    this.#url = url;
    this.#options = options;
  }

  /** Opens the store, if it isn't. `OpenError` where it can't be. */
  connect(): Promise<NativeStore> {
    this.#opening ??= this.#open();
    return this.#opening;
  }

  async #open(): Promise<NativeStore> {
    if (this.#closing) throw closed();
    const native = loadNative();
    const calls = this.#calls;
    let store: NativeStore | undefined;
    const { end, reason } = await calls.begin((ticket) => {
      try {
        store = native.open(ticket, this.#url, this.#options, calls.tell);
      } catch (error) {
        throw new OpenError((error as Error).message);
      }
    });
    if (end !== "opened" || !store) {
      this.#opening = undefined;
      throw end === "failed" ? new OpenError(reason ?? "the store can't be opened") : closed();
    }
    this.#native = store;
    return store;
  }

  async ask(method: string, path: string, body: string | undefined, limit: number, signal?: AbortSignal): Promise<Received> {
    const native = this.#native ?? (await this.connect());
    if (this.#closing) throw closed();
    signal?.throwIfAborted();
    const start = (ticket: number) => native.start(ticket, method, path.slice(1), body, limit / 1000);
    const { end, reply } = await this.#calls.begin(start, signal, (ticket) => native.cancel(ticket));
    if (end === "timed_out") throw new DOMException("no answer in time", "TimeoutError");
    if (!reply) throw closed();
    const headers = new Headers();
    for (let at = 0; at < reply.headers.length; at += 2) headers.append(reply.headers[at] ?? "", reply.headers[at + 1] ?? "");
    return { status: reply.status, headers, body: reply.body };
  }

  /** Ends what is under way, and closes the connections. It stays closed. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const native = this.#native ?? (await this.#opening?.catch(() => undefined));
    this.#calls.endAll(closed);
    if (native) await this.#calls.begin((ticket) => native.close(ticket, CLOSING_S));
    this.#calls.end();
  }
}
