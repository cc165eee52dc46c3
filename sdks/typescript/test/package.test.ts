/** The package as others get it: its entries, its declarations, and what it brings along. */
import { execFileSync } from "node:child_process";
import { cp, mkdtemp, readFile, readdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { publint } from "publint";
import { beforeAll, expect, test } from "vitest";

const SOURCES = fileURLToPath(new URL("..", import.meta.url));
let built = "";

beforeAll(async () => {
  built = await mkdtemp(join(tmpdir(), "semel-package-"));
  const tsc = join(SOURCES, "node_modules/typescript/bin/tsc");
  execFileSync(process.execPath, [tsc, "-p", "tsconfig.build.json", "--outDir", join(built, "dist")], { cwd: SOURCES });
  for (const file of ["package.json", "README.md", "LICENSE-MIT", "LICENSE-APACHE"]) await cp(join(SOURCES, file), join(built, file));
});

test("publint has nothing to say", async () => {
  const { messages } = await publint({ pkgDir: built, pack: false, strict: true });
  expect(messages).toEqual([]);
});

test("a caller installs this package alone", async () => {
  const found = JSON.parse(await readFile(join(built, "package.json"), "utf8")) as {
    dependencies?: object;
    exports: Record<string, unknown>;
    peerDependencies: object;
    peerDependenciesMeta: Record<string, { optional: boolean }>;
  };
  expect(found.dependencies).toBeUndefined();
  expect(Object.keys(found.peerDependencies).filter((name) => !found.peerDependenciesMeta[name]?.optional)).toEqual([]);
  expect(found.exports["./package.json"]).toBe("./package.json");
  expect(found.exports["./record"]).toBeUndefined();
});

test("the declarations need no newer compiler than their users have", async () => {
  const files = (await readdir(join(built, "dist"))).filter((name) => name.endsWith(".d.ts"));
  expect(files).toContain("index.d.ts");
  // Typed arrays have a parameter since TypeScript 5.7.
  for (const name of files) expect(await readFile(join(built, "dist", name), "utf8"), name).not.toMatch(/Uint8Array</);
});

test("the main entry, bundled for browsers, asks for no module of Node", async () => {
  const entry = join(built, "dist/index.js");
  const seen = new Set<string>();
  const visit = async (path: string): Promise<void> => {
    if (seen.has(path)) return;
    seen.add(path);
    const text = await readFile(path, "utf8");
    for (const [, name = ""] of text.matchAll(/(?:from|import)\s*\(?"([^"]+)"/g)) {
      expect(name, path).toMatch(/^\.\//);
      await visit(join(path, "..", name));
    }
  };
  await visit(entry);
  expect(seen.size).toBeGreaterThan(5);
  await writeFile(join(built, "user.mjs"), `import * as semel from ${JSON.stringify(entry)}; console.log(Object.keys(semel).join())`);
  const names = execFileSync(process.execPath, [join(built, "user.mjs")], { encoding: "utf8" });
  expect(names.split(",")).not.toContain("fingerprintOf");
});
