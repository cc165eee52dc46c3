/** Programs of this folder as Node runs them, with the native module where the package has it. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const MODULES = fileURLToPath(new URL("../../node_modules/", import.meta.url));
const NATIVE = fileURLToPath(new URL("../../semel.node", import.meta.url));

export interface Built {
  /** The program's file. */
  program: string;
  start: (...args: string[]) => ChildProcess;
  remove: () => void;
}

/** Node 20 reads no TypeScript by itself. */
export async function built(name: string): Promise<Built> {
  const folder = mkdtempSync(join(MODULES, ".semel-"));
  const outDir = join(folder, "dist");
  mkdirSync(outDir);
  symlinkSync(NATIVE, join(folder, "semel.node"));
  const entry = fileURLToPath(new URL(`${name}.ts`, import.meta.url));
  await build({ logLevel: "error", configFile: false, build: { ssr: entry, outDir, emptyOutDir: true, target: "node20" } });
  const program = join(outDir, `${name}.js`);
  return {
    program,
    start: (...args) => spawn(process.execPath, [program, ...args], { stdio: ["ignore", "pipe", "inherit"] }),
    remove: () => rmSync(folder, { recursive: true }),
  };
}
