/** The ways to an engine that the same tests go: a sidecar, and a store of each kind in this process. */
import { randomBytes } from "node:crypto";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { EmbeddedStore } from "../../src/engine.js";
import { type StoreSettings, nativeOptions } from "../../src/open.js";
import { Semel, type SemelOptions } from "../../src/worker.js";
import { sidecar } from "./servers.js";

export const newEnvironment = (): string => `sdk-${randomBytes(6).toString("hex")}`;

/** The kinds of stores that can be opened here: those of servers where the environment names them. */
export const STORES: string[] = ["memory", "sqlite", "redis", "postgres"].filter((kind) => kind === "memory" || kind === "sqlite" || serverOf(kind));

function serverOf(kind: string): string | undefined {
  return process.env[`SEMEL_TEST_${kind.toUpperCase()}_URL`];
}

/** The URL of a store. Each of SQLite is new. */
export function storeUrl(kind: string): string {
  if (kind === "memory") return "memory://";
  if (kind === "sqlite") return `sqlite://${join(mkdtempSync(join(tmpdir(), "semel-store-")), "keys.db")}`;
  return serverOf(kind) ?? "";
}

/** A way, and how clients of it are made. */
export interface Way {
  semel: (options?: Partial<SemelOptions>) => Semel;
  stop: () => Promise<void>;
}

export const SIDECAR = "sidecar";
/** Every way. */
export const WAYS: string[] = [SIDECAR, ...STORES];

/** A way with keys of its own. */
export async function wayOf(name: string, settings: StoreSettings = {}): Promise<Way> {
  if (name === SIDECAR) {
    const running = await sidecar();
    return { semel: (options = {}) => new Semel({ ...options, url: `${running.url}/_semel` }), stop: running.stop };
  }
  const transport = new EmbeddedStore(storeUrl(name), nativeOptions({ environment: newEnvironment(), ...settings }));
  await transport.connect();
  return { semel: (options = {}) => new Semel({ ...options, url: "", transport }), stop: () => transport.close() };
}
