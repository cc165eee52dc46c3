// The tarball as it was packed, in a clean folder, with a real sidecar: the program is the argument.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { Semel } from "@semel/client";
import { open } from "@semel/client/open";
import { Outbox } from "@semel/client/outbox";
import { withIdempotency } from "@semel/client/web";
import { FakeSemel } from "@semel/client/testing";

const port = await new Promise((resolve) => {
  const socket = createServer().listen(0, "127.0.0.1", () => {
    const { port } = socket.address();
    socket.close(() => resolve(port));
  });
});
const url = `http://127.0.0.1:${port}/_semel`;
const options = ["--listen", `127.0.0.1:${port}`, "--set", "api.access=loopback", "--set", "log.level=error"];
const sidecar = spawn(process.argv[2], ["serve", "--upstream", "http://127.0.0.1:9", "--store", "memory://", ...options], {
  stdio: "inherit",
});
try {
  for (let turn = 0; turn < 600; turn++) {
    if (await fetch(`${url}/readyz`).then((response) => response.ok, () => false)) break;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  for (const semel of [new FakeSemel().semel(), new Semel({ url }), await open("memory://")]) {
    for (const replayed of [false, true]) {
      const found = await semel.run({ scope: "smoke", key: "k-1" }, () => ({ done: 1 }));
      if (found.replayed !== replayed) throw new Error(`replayed is ${found.replayed}`);
    }
  }
  if (typeof Outbox.open !== "function" || typeof withIdempotency !== "function") throw new Error("an entry is missing");
} finally {
  sidecar.kill("SIGKILL");
}
const own = new URL("./node_modules/@semel/client/", import.meta.url);
readFileSync(new URL("dist/index.d.ts", own));
const { version } = JSON.parse(readFileSync(new URL("package.json", own), "utf8"));
console.log(`@semel/client ${version} from its tarball: runs once, with a sidecar and without`);
