/** The examples run, and the guides show exactly these files. */
import { mkdtemp, readFile, readdir } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Client, EffectFailed, newKey } from "../src/index.js";
import { Payments, type Running, listening, sidecar } from "./support/servers.js";
import { STORES, newEnvironment, storeUrl } from "./support/ways.js";

const EXAMPLES = new URL("../examples/", import.meta.url);
const payments = new Payments();
let service: Running, way: Running;

beforeAll(async () => {
  service = await payments.start();
  way = await sidecar(service.url);
  process.env["PAYMENTS_URL"] = way.url;
  process.env["SIDECAR_URL"] = `${way.url}/_semel`;
  process.env["OUTBOX"] = await mkdtemp(join(tmpdir(), "semel-example-"));
});
afterAll(async () => {
  await way.stop();
  await service.stop();
});

test("the first call", async () => {
  const { charge } = await import("../examples/first-call.js");
  const [first, again] = [await charge("ord-1", 500), await charge("ord-1", 500)];
  expect([first?.status, first?.replayed, again?.replayed]).toEqual([201, false, true]);
  expect(payments.effects.get("ord-1")).toBe(1);
});

test("the outbox", async () => {
  const { charge, finishWhatWasLeft, receipts } = await import("../examples/outbox-calls.js");
  await charge("o-1", 5);
  await finishWhatWasLeft();
  expect(receipts.get("o-1")).toEqual({ order: "o-1", receipt: payments.receipts.get("o-1") });
  expect(await readdir(process.env["OUTBOX"] ?? "")).toEqual([]);
});

test("the worker", async () => {
  const { charge, charges } = await import("../examples/worker.js");
  const order = { id: newKey(), cents: 500 };
  expect([await charge(order), await charge(order)]).toEqual([{ charge: "ch_1" }, { charge: "ch_1" }]);
  expect(charges.length).toBe(1);
  await expect(charge({ id: newKey(), cents: 20_000 })).rejects.toBeInstanceOf(EffectFailed);
});

test("the long export", async () => {
  const { exportReport } = await import("../examples/long-export.js");
  const pages: number[] = [];
  expect(await exportReport("r-1", 3, (page) => pages.push(page))).toBe(3);
  expect(await exportReport("r-1", 3, (page) => pages.push(page))).toBe(3);
  expect(pages).toEqual([0, 1, 2]);
});

test("an agent that words its call anew", async () => {
  const { main } = await import("../examples/ai-agent.js");
  const [counted, told] = await main(newKey());
  expect(counted).toBe("without: 2 emails, with: 1");
  expect(told).toMatch(/^Nothing was done: this call of sendEmail is like an earlier one/);
});

test("Express without a sidecar", async () => {
  const environment = newEnvironment();
  process.env["DATABASE_URL"] = storeUrl(STORES.at(-1) ?? "");
  process.env["ENVIRONMENT"] = environment;
  const { app, charges, semel } = await import("../examples/express-alone.js");
  const server = createServer(app as Parameters<typeof createServer>[1]);
  const url = `${await listening(server)}/charges`;
  const client = new Client();
  const charge = () => client.post(url, { json: { order: "ord-1", cents: 500 }, key: "charge-ord-1" });
  const answers = await Promise.all([charge(), charge(), charge()]);
  expect(answers.map((answer) => answer.text())).toEqual(Array(3).fill('{"charge":"ch_1"}'));
  expect(answers.filter(({ replayed }) => replayed).length).toBe(2);
  expect(charges).toEqual([{ order: "ord-1", cents: 500 }]);
  server.close();
  await semel.close();
});

test("a route without a sidecar", async () => {
  process.env["STORE_URL"] = storeUrl("sqlite");
  const { POST, charges, semel } = await import("../examples/web-alone.js");
  const charge = (cents: number) => {
    const headers = { "Content-Type": "application/json", "Idempotency-Key": "charge-ord-1" };
    return POST(new Request("http://shop.example/charges", { method: "POST", headers, body: JSON.stringify({ cents }) }));
  };
  const [first, again, other] = [await charge(500), await charge(500), await charge(501)];
  expect([first.status, again.status, other.status]).toEqual([201, 201, 422]);
  expect([first.headers.get("idempotent-replayed"), again.headers.get("idempotent-replayed")]).toEqual([null, "true"]);
  expect([await again.json(), charges.length]).toEqual([await first.json(), 1]);
  await semel.close();
});

test("the pages show the files", async () => {
  const pages = ["typescript.md", "agents.md", "webhooks.md"].map((name) => new URL(`../../../docs/${name}`, import.meta.url));
  const page = (await Promise.all(pages.map((each) => readFile(each, "utf8")))).join("");
  const blocks = new Map([...page.matchAll(/<!-- file: (\S+) -->\n```tsx?\n(.*?)```/gs)].map(([, file, text]) => [file!, text!]));
  expect(page.match(/```tsx?\n/g)?.length).toBe(blocks.size);
  for (const [file, text] of blocks) expect(text, file).toBe(await readFile(new URL(file, EXAMPLES), "utf8"));
  expect([...blocks.keys()].sort()).toEqual((await readdir(EXAMPLES)).sort());
});
