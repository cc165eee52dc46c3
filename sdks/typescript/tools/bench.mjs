// Runs a second in this process: fresh ones and replays, on memory and Redis, and the same with a package of npm.
//
//   npm run build && cp ../../target/release/libsemel_node.so semel.node
//   REDIS_URL=redis://127.0.0.1 PEERS=/folder/with/node_modules node tools/bench.mjs
//
// PEERS has `@node-idempotency/core` and `@node-idempotency/storage-adapter-redis`; without it Semel is measured alone. The
// subjects take turns, so that a machine that is busy for a while is busy for all of them.
import { createRequire } from "node:module";
import { join } from "node:path";
import { open } from "../dist/open.js";

const [OPERATIONS, LANES, ROUNDS] = [2000, 16, 5];
const redis = process.env.REDIS_URL;
const environment = `bench-${process.pid}-${Date.now()}`;
const order = { order: "ord-1", cents: 500 };

async function semelOn(url) {
  const semel = await open(url, { environment });
  const run = (key) => semel.run({ scope: "charge", key, payload: order }, () => ({ charge: "ch_1" }));
  return { run, close: () => semel.close() };
}

async function peer(folder, url) {
  const peers = createRequire(join(folder, "package.json"));
  const { Idempotency } = peers("@node-idempotency/core");
  const { RedisStorageAdapter } = peers("@node-idempotency/storage-adapter-redis");
  const storage = new RedisStorageAdapter({ url });
  await storage.connect();
  const idempotency = new Idempotency(storage, { cacheKeyPrefix: environment });
  const run = async (key) => {
    const request = { headers: { "idempotency-key": key }, path: "/charges", method: "POST", body: order };
    const found = await idempotency.onRequest(request);
    if (found) return found;
    const response = { body: { charge: "ch_1" }, additional: { statusCode: 201 } };
    await idempotency.onResponse(request, response);
    return response;
  };
  return { run, close: () => storage.disconnect() };
}

async function perSecond(run, round) {
  let next = 0;
  const began = performance.now();
  const lane = async () => {
    while (next < OPERATIONS) await run(`k-${round}-${next++}`);
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  return (OPERATIONS * 1000) / (performance.now() - began);
}

const subjects = { "semel, memory": await semelOn("memory://") };
if (redis) subjects["semel, Redis"] = await semelOn(redis);
if (redis && process.env.PEERS) subjects["@node-idempotency, Redis"] = await peer(process.env.PEERS, redis);

const figures = Object.fromEntries(Object.keys(subjects).map((name) => [name, { fresh: [], replay: [] }]));
for (let round = 0; round <= ROUNDS; round++) {
  for (const [name, { run }] of Object.entries(subjects)) {
    const found = { fresh: await perSecond(run, round), replay: await perSecond(run, round) };
    // The first round warms up.
    if (round > 0) for (const kind of ["fresh", "replay"]) figures[name][kind].push(found[kind]);
  }
}
const median = (values) => Math.round(values.sort((a, b) => a - b)[Math.floor(values.length / 2)]);
console.log(`${OPERATIONS} operations, ${LANES} at a time, the median of ${ROUNDS} rounds, a second:`);
console.table(Object.fromEntries(Object.entries(figures).map(([name, { fresh, replay }]) => [name, { fresh: median(fresh), replay: median(replay) }])));
for (const { close } of Object.values(subjects)) await close();
