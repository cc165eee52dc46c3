/**
 * Calls that survive their process: a folder with one file for each call that has no answer yet.
 *
 * A file is whole or not there: it is written beside, made durable (`fsync`), and then linked to its name, which only one
 * process wins. So there is no lock to be left behind, any number of processes may share the folder, and another one, in
 * TypeScript or Python, may send what a dead one left. Two that send the same call do no harm: both have the same key.
 */
import { createHash, randomBytes } from "node:crypto";
import { type FileHandle, link, mkdir, open, readFile, readdir, rename, stat, unlink } from "node:fs/promises";
import { basename, join } from "node:path";
import { CallChanged, OutboxDamaged } from "./errors.js";
import { checkKey, newKey } from "./keys.js";

const MAX_NAME_BYTES = 1024;
const VERSION = 1;
const BESIDE = ".new-";
const STALE_MS = 3_600_000;

/** What is sent, without credentials: those are the sender's, and never on disk. */
export interface StoredRequest {
  method: string;
  url: string;
  contentType: string | null;
  body: Uint8Array<ArrayBuffer>;
}

/** One call: its name, its key, and what it sends once that is known. */
export interface Entry {
  name: string;
  key: string;
  /** Seconds since 1970. */
  created: number;
  request: StoredRequest | undefined;
}

interface OnDisk {
  version: number;
  name: string;
  key: string;
  created: number;
  request: { method: string; url: string; content_type: string | null; body_base64: string } | null;
}

const hasCode = (error: unknown, code: string) => (error as { code?: unknown } | null)?.code === code;

/** The folder. Made for its owner alone: requests are in it. */
export class Outbox {
  private constructor(readonly folder: string) {}

  /** Opens a folder, which is made where there is none. */
  static async open(folder: string): Promise<Outbox> {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const outbox = new Outbox(folder);
    await outbox.#sweep();
    return outbox;
  }

  /** The call of this name, begun now or by a process before. Its key is on disk when this returns. */
  async begin(name: string, key?: string): Promise<Entry> {
    const size = Buffer.byteLength(name);
    if (size === 0 || size > MAX_NAME_BYTES) throw new RangeError(`a call's name has 1 to ${MAX_NAME_BYTES} bytes`);
    const created = Date.now() / 1000;
    const fresh: Entry = { name, key: key === undefined ? newKey() : checkKey(key), created, request: undefined };
    for (;;) {
      const beside = await this.#write(fresh);
      let made: Entry | undefined = fresh;
      try {
        await link(beside, this.#path(name));
      } catch (error) {
        if (!hasCode(error, "EEXIST")) throw error;
        // Forgotten by another process between the two steps: begin anew.
        made = await this.get(name);
      } finally {
        await unlink(beside);
      }
      if (made) {
        await this.#sync();
        return made;
      }
    }
  }

  /** Keeps what the call sends. `CallChanged` where it was begun with something else. */
  async attach(entry: Entry, request: StoredRequest): Promise<Entry> {
    if (entry.request) {
      if (!same(entry.request, request)) throw new CallChanged("a call of this name was begun with another request");
      return entry;
    }
    const whole = { ...entry, request };
    await rename(await this.#write(whole), this.#path(entry.name));
    await this.#sync();
    return whole;
  }

  /** The call of this name, where it has no answer yet. */
  get(name: string): Promise<Entry | undefined> {
    return read(this.#path(name));
  }

  /** Every call without an answer, the oldest first. */
  async pending(): Promise<Entry[]> {
    const files = (await readdir(this.folder)).filter((file) => file.endsWith(".call"));
    const entries = await Promise.all(files.map((file) => read(join(this.folder, file))));
    return entries.filter((entry) => entry !== undefined).sort((a, b) => a.created - b.created);
  }

  /** The answer is where the caller wants it. From here on, the name is a new call. */
  async forget(name: string): Promise<void> {
    try {
      await unlink(this.#path(name));
    } catch (error) {
      if (!hasCode(error, "ENOENT")) throw error;
    }
    await this.#sync();
  }

  #path(name: string): string {
    return join(this.folder, fileOf(name));
  }

  async #write(entry: Entry): Promise<string> {
    const beside = join(this.folder, BESIDE + randomBytes(8).toString("hex"));
    const { request } = entry;
    const value: OnDisk = {
      version: VERSION,
      name: entry.name,
      key: entry.key,
      created: entry.created,
      request: request
        ? {
            method: request.method,
            url: request.url,
            content_type: request.contentType,
            body_base64: Buffer.from(request.body).toString("base64"),
          }
        : null,
    };
    await durable(await open(beside, "wx", 0o600), JSON.stringify(value));
    return beside;
  }

  async #sync(): Promise<void> {
    // Without this, the name could be lost although the file is safe. Windows has no such call, and needs none.
    if (process.platform === "win32") return;
    await durable(await open(this.folder, "r"));
  }

  async #sweep(): Promise<void> {
    for (const file of await readdir(this.folder)) {
      if (!file.startsWith(BESIDE)) continue;
      const path = join(this.folder, file);
      try {
        if (Date.now() - (await stat(path)).mtimeMs > STALE_MS) await unlink(path);
      } catch (error) {
        if (!hasCode(error, "ENOENT")) throw error;
      }
    }
  }
}

async function durable(file: FileHandle, text?: string): Promise<void> {
  try {
    if (text !== undefined) await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

function same(a: StoredRequest, b: StoredRequest): boolean {
  const head = a.method === b.method && a.url === b.url && a.contentType === b.contentType;
  return head && Buffer.compare(a.body, b.body) === 0;
}

function fileOf(name: string): string {
  return `${createHash("sha256").update(name).digest("hex")}.call`;
}

async function read(path: string): Promise<Entry | undefined> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
  try {
    const value = JSON.parse(text) as OnDisk;
    if (value.version !== VERSION) throw new TypeError("another version");
    // It would be sent as another call, and never be forgotten.
    if (fileOf(value.name) !== basename(path)) throw new TypeError("another call's");
    const { request } = value;
    const body = new Uint8Array(Buffer.from(request?.body_base64 ?? "", "base64"));
    const kept = request && { method: request.method, url: request.url, contentType: request.content_type, body };
    return { name: value.name, key: checkKey(value.key), created: value.created, request: kept ?? undefined };
  } catch (cause) {
    throw new OutboxDamaged("a file of the outbox can't be read", { cause });
  }
}
