// Writes src/api-types.ts from spec/openapi.json, or with --check fails where it isn't current.
import { readFileSync, writeFileSync } from "node:fs";
import openapiTS, { astToString } from "openapi-typescript";

const spec = new URL("../../../spec/openapi.json", import.meta.url);
const CALLED = ["/v1/"];
const output = new URL("../src/api-types.ts", import.meta.url);

function namesIn(value) {
  if (value === null || typeof value !== "object") return [];
  const own = typeof value.$ref === "string" ? [value.$ref.split("/").at(-1)] : [];
  return own.concat(Object.values(value).flatMap(namesIn));
}

// What this package calls; and the schemas alone, since paths are written by hand.
function ours(document) {
  const paths = Object.entries(document.paths).filter(([path]) => CALLED.some((start) => path.startsWith(start)));
  const found = new Set();
  let todo = namesIn(paths);
  while (todo.length > 0) {
    for (const name of todo) found.add(name);
    todo = todo.flatMap((name) => namesIn(document.components.schemas[name])).filter((name) => !found.has(name));
  }
  const schemas = Object.fromEntries(Object.entries(document.components.schemas).filter(([name]) => found.has(name)));
  return { ...document, paths: {}, components: { schemas } };
}

const document = ours(JSON.parse(readFileSync(spec, "utf8")));
const made = astToString(await openapiTS(document, { exportType: true }));
const names = Object.keys(document.components.schemas).sort();
const aliases = names.map((name) => `export type ${name} = components["schemas"]["${name}"];`);
const wanted = `// Made by tools/generate.mjs from spec/openapi.json.\n\n${made}\n${aliases.join("\n")}\n`;

if (!process.argv.includes("--check")) writeFileSync(output, wanted);
else if (readFileSync(output, "utf8") !== wanted) {
  console.error("src/api-types.ts is out of date: npm run generate");
  process.exit(1);
}
