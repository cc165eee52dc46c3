/** `open`: a sidecar or a store, by its URL. For Node: the store is opened in this process. */
import { EmbeddedStore } from "./engine.js";
import { OpenError } from "./errors.js";
import type { NativeOptions } from "./native.js";
import { Semel, type SemelOptions } from "./worker.js";

export { OpenError };

/** What a store in this process is opened with: the same in all processes that share it. */
export interface StoreSettings {
  /** Equal keys of different environments are different keys. Empty by default. */
  environment?: string;
  /** Keys identities and fingerprints: at least 16 bytes, as a sidecar has them in `store.secret_file`. */
  secret?: string | Uint8Array;
  /** The secret's number, 1 by default. */
  secretId?: number;
  /** The lines of a key file, as `semel encryption-key` writes them: answers and checkpoints are encrypted. */
  encryptionKeys?: string;
}

/** How a store or a sidecar is used: `token` and `fetch` are for a sidecar, `StoreSettings` for a store. */
export interface OpenOptions extends StoreSettings, Omit<SemelOptions, "url" | "transport"> {}

/**
 * Functions that run once, on a store in this process: `postgres://…`, `redis://…`, `sqlite:///…`, `mysql://…`, `s3://…`,
 * `memory://`. `http://…` is a sidecar. `OpenError` where the store can't be opened.
 */
export async function open(url: string, options: OpenOptions = {}): Promise<Semel> {
  const { environment, secret, secretId, encryptionKeys, ...rest } = options;
  const settings = { environment, secret, secretId, encryptionKeys };
  if (/^https?:\/\//.test(url)) {
    const given = Object.entries(settings).filter(([, value]) => value !== undefined);
    if (given.length > 0) throw new TypeError(`a sidecar has its own settings; leave out ${given.map(([name]) => name).join(", ")}`);
    return new Semel({ ...rest, url });
  }
  for (const name of ["token", "fetch"] as const) {
    if (rest[name] !== undefined) throw new TypeError(`${name} is for a sidecar; leave it out`);
  }
  const transport = new EmbeddedStore(url, nativeOptions(settings));
  await transport.connect();
  return new Semel({ ...rest, url, transport });
}

type Given<T> = { [K in keyof T]?: T[K] | undefined };

/** The settings with their defaults. */
export function nativeOptions({ environment = "", secret, secretId = 1, encryptionKeys }: Given<StoreSettings>): NativeOptions {
  return {
    environment,
    secretId,
    ...(secret === undefined ? {} : { secret: withoutEnd(secret) }),
    ...(encryptionKeys === undefined ? {} : { encryptionKeys }),
  };
}

/** A secret's bytes, without the line's end that its file may have. */
function withoutEnd(secret: string | Uint8Array): Uint8Array {
  const bytes = typeof secret === "string" ? new TextEncoder().encode(secret) : secret;
  let length = bytes.length;
  while (length > 0 && [9, 10, 11, 12, 13, 32].includes(bytes[length - 1] ?? 0)) length -= 1;
  return bytes.subarray(0, length);
}
