#!/usr/bin/env node
// Starts the program of the package for this platform, and ends as it ends.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

function program() {
  const name = `@semel/cli-${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${name}/bin/semel`);
  } catch {
    console.error(
      `semel: there is no program for ${process.platform} on ${process.arch}: the package ${name} is not installed.\n` +
        "    fix: install without --omit=optional; on another platform, build from source",
    );
    process.exit(1);
  }
}

const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
// A terminal sends Ctrl-C to the child, too. A second one would cut off its drain, so the launcher only waits.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) {
  process.on(signal, () => {
    child.kill(signal);
  });
}
child.on("error", (error) => {
  console.error(`semel: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  process.exit(signal ? 128 + constants.signals[signal] : code);
});
