/**
 * Calls that survive their process: a folder with one file for each call that has no answer yet.
 *
 * A file is whole or not there: it is written beside, made durable (`fsync`), and then linked to its name, which only one
 * process wins. So there is no lock to be left behind, any number of processes may share the folder, and another one, in
 * TypeScript, Python or Rust, may send what a dead one left. Two that send the same call do no harm: both have the same key.
 */
import { createHash, randomBytes } from "node:crypto";
import { type FileHandle, link, mkdir, open, readFile, readdir, rename, stat, unlink } from "node:fs/promises";
import { basename, join } from "node:path";
import { CallChanged, OutboxDamaged } from "./errors.js";
import { checkKey, newKey } from "./keys.js";

const MAX_NAME_BYTES = 1024;
const VERSION = 1;
const BESIDE = ".new-";
const ASIDE = ".old-";
const STALE_MS = 3_600_000;
const CHANGED = "a call of this name was begun with another key or request; forget it first, or use another name";

/** What is sent, without credentials: those are the sender's, and never on disk. */
export interface StoredRequest {
  method: string;
  url: string;
  contentType: string | null;
  body: Uint8Array;
}

/** One call: its name, its key, and what it sends once that is known. */
export interface Entry {
  name: string;
  key: string;
  /** Seconds since 1970. */
  created: number;
  request: StoredRequest | undefined;
  /** Whether somebody may have sent it: its request was on disk before it was read or attached. */
  maybeSent: boolean;
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
    const own = key === undefined ? newKey() : checkKey(key);
    const fresh: Entry = { name, key: own, created, request: undefined, maybeSent: false };
    for (;;) {
      // Where neither, another process has forgotten it between the two steps: begin anew.
      const made = (await this.#link(fresh)) ? fresh : await this.get(name);
      if (made) {
        await this.#sync();
        return made;
      }
    }
  }

  /** Keeps what the call sends. `CallChanged` where the name is another call's by now, or was begun with something else. */
  async attach(entry: Entry, request: StoredRequest): Promise<Entry> {
    if (entry.request && !same(entry.request, request)) throw new CallChanged(CHANGED);
    for (;;) {
      // Asked of the disk: an entry is as old as its reading, and others may have gone on with the call.
      const found = await this.get(entry.name);
      if (found && (found.key !== entry.key || (found.request && !same(found.request, request)))) throw new CallChanged(CHANGED);
      if (found?.request) return found;
      // Where it is gone, whoever forgot it may have sent it.
      const whole = { ...entry, request, maybeSent: !found };
      if (found) await rename(await this.#write(whole), this.#path(entry.name));
      else if (!(await this.#link(whole))) continue;
      await this.#sync();
      return whole;
    }
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

  /**
   * The answer is where the caller wants it. From here on, the name is a new call. What has become another call, or has
   * got a request since the entry was read, stays: somebody works on it.
   */
  async forget(entry: Entry): Promise<void> {
    const path = this.#path(entry.name);
    if (!isStill(await read(path), entry)) return;
    // What lies aside can't change any more; by its name it could, between the look and the removal.
    const aside = this.#beside(ASIDE);
    if (!(await unless(rename(path, aside), "ENOENT"))) return;
    let drop = false;
    try {
      drop = isStill(await read(aside), entry);
    } finally {
      if (!drop) await putBack(aside, path);
      await unless(unlink(aside), "ENOENT");
    }
    await this.#sync();
  }

  #path(name: string): string {
    return join(this.folder, fileOf(name));
  }

  #beside(prefix: string): string {
    return join(this.folder, prefix + randomBytes(8).toString("hex"));
  }

  /** Writes it, unless there is a call of its name. */
  async #link(entry: Entry): Promise<boolean> {
    const beside = await this.#write(entry);
    try {
      return await unless(link(beside, this.#path(entry.name)), "EEXIST");
    } finally {
      await unlink(beside);
    }
  }

  async #write(entry: Entry): Promise<string> {
    const beside = this.#beside(BESIDE);
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

  /**
   * What a process that died while writing left beside goes. What one that died while forgetting left aside is a call
   * again: nobody knows whether it was to be forgotten, and with its key, asking again does no harm.
   */
  async #sweep(): Promise<void> {
    for (const file of await readdir(this.folder)) {
      const aside = file.startsWith(ASIDE);
      if (!aside && !file.startsWith(BESIDE)) continue;
      const path = join(this.folder, file);
      try {
        const { mtimeMs, ctimeMs } = await stat(path);
        // A renamed file is as old as its call by the one time, and as its renaming by the other.
        if (Date.now() - (aside ? ctimeMs : mtimeMs) <= STALE_MS) continue;
        const left = aside ? await read(path) : undefined;
        if (left) await putBack(path, this.#path(left.name));
        await unlink(path);
      } catch (error) {
        if (!hasCode(error, "ENOENT")) throw error;
      }
    }
  }
}

/** Whether a step was done; not where it failed with one of these codes. */
async function unless(step: Promise<void>, ...codes: string[]): Promise<boolean> {
  try {
    await step;
    return true;
  } catch (error) {
    if (codes.some((code) => hasCode(error, code))) return false;
    throw error;
  }
}

/** Where the name is taken, it was begun anew meanwhile: the newer call is what stands there. */
async function putBack(aside: string, path: string): Promise<void> {
  await unless(link(aside, path), "EEXIST", "ENOENT");
}

/** Whether this is the call of the entry, as the entry saw it. */
function isStill(found: Entry | undefined, entry: Entry): boolean {
  return found?.key === entry.key && (found.request === undefined) === (entry.request === undefined);
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
    const file = basename(path);
    // It would be sent as another call, and never be forgotten.
    if (fileOf(value.name) !== file && !file.startsWith(ASIDE)) throw new TypeError("another call's");
    const { request } = value;
    const body = new Uint8Array(Buffer.from(request?.body_base64 ?? "", "base64"));
    const kept = request && { method: request.method, url: request.url, contentType: request.content_type, body };
    const { name, created } = value;
    return { name, key: checkKey(value.key), created, request: kept ?? undefined, maybeSent: !!kept };
  } catch (cause) {
    throw new OutboxDamaged("a file of the outbox can't be read", { cause });
  }
}
