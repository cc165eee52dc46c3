/** A worker thread with a store of its own, which its parent may end at any moment. */
import { parentPort, workerData } from "node:worker_threads";
import { open } from "../../src/open.js";

const { url, environment, keys, busy } = workerData as { url: string; environment: string; keys: number; busy: boolean };
const once = await open(url, { environment });
const mine: string[] = [];
for (let number = 0; number < keys; number++) {
  const key = `k-${number}`;
  await once.run({ scope: "threads", key }, () => void mine.push(key));
}
parentPort?.postMessage(mine);
for (let number = 0; busy; number++) await once.run({ scope: "threads", key: `busy-${number % 10}` }, () => 1);
