import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const src = (name: string) => fileURLToPath(new URL(`./src/${name}`, import.meta.url));

export default defineConfig({
  resolve: {
    alias: [
      { find: /^@semel\/client$/, replacement: src("index.ts") },
      { find: /^@semel\/client\/(.*)$/, replacement: src("$1.ts") },
    ],
  },
  test: {
    include: ["test/**/*.test.{ts,tsx}", "examples/**/*.test.ts"],
    testTimeout: 180_000,
    hookTimeout: 60_000,
    maxWorkers: 2,
  },
});
