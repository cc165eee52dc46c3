/** Owners in trouble: lost settlements, failures that can't be kept, answers that an operator wrote, other hosts. */
import { createServer, request } from "node:http";
import express from "express";
import { expect, test } from "vitest";
import * as forExpress from "../src/express.js";
import { principalKey } from "../src/digest.js";
import type { MiddlewareOptions } from "../src/http.js";
import { EffectFailed, Final, LeaseLost, RetryBudget, Semel, Unrecorded } from "../src/index.js";
import { FakeSemel } from "../src/testing.js";
import { listening } from "./support/servers.js";

const FINAL = { error: "declined" };
const pay = (semel: Semel, effect: () => Promise<unknown>) => semel.run({ scope: "pay", key: "k" }, effect);

test("a failure for good that came after another's success is not told", async () => {
  const fake = new FakeSemel();
  const told = pay(fake.semel(), async () => {
    fake.advance(31_000);
    expect((await pay(fake.semel(), () => Promise.resolve("ch_1"))).value).toBe("ch_1");
    throw new Final(FINAL);
  });
  await expect(told).rejects.toBeInstanceOf(LeaseLost);
  expect((await pay(fake.semel(), () => Promise.reject(new Final(FINAL)))).value).toBe("ch_1");
});

test("a failure for good that is not recorded is told as that", async () => {
  const fake = new FakeSemel({ leaseMs: 300 });
  const told = pay(fake.semel(), () => {
    fake.loseReplies(10_000);
    return Promise.reject(new Final(FINAL));
  });
  await expect(told).rejects.toBeInstanceOf(Unrecorded);
});

test("a failure for good without a JSON answer is kept", async () => {
  const fake = new FakeSemel();
  let runs = 0;
  const failing = () => {
    runs++;
    return Promise.reject(new Final({ cents: 5n }));
  };
  await expect(pay(fake.semel(), failing)).rejects.toBeInstanceOf(EffectFailed);
  await expect(pay(fake.semel(), failing)).rejects.toBeInstanceOf(EffectFailed);
  expect(runs).toBe(1);
});

test("a settlement is sent until it is acknowledged, whatever others spent", async () => {
  const fake = new FakeSemel();
  const done = await pay(fake.semel({ budget: new RetryBudget(0, 0) }), () => {
    fake.loseReplies(3);
    return Promise.resolve("done");
  });
  expect(done.value).toBe("done");
});

test("an answer that an operator wrote in a file is read", async () => {
  const written = (text: string) => {
    const view = { id: "0".repeat(64), status: "completed", replayed: true, took_ms: 0, answer: { body_base64: btoa(text) } };
    return new Semel({ url: "http://semel.test", fetch: () => Promise.resolve(Response.json(view)) });
  };
  const never = () => Promise.reject(new Error("it was done before"));
  expect((await pay(written('{"charge": "ch_1"}\n'), never)).value).toEqual({ charge: "ch_1" });
  await expect(pay(written("no JSON"), never)).rejects.toThrow("isn't JSON");
});

test.each([
  [true, 422],
  [false, 201],
])("the host that was asked counts, unless told not to: %s", async (authority, status) => {
  const app = express();
  let runs = 0;
  app.use(express.json(), forExpress.idempotency({ semel: new FakeSemel().semel(), authority }));
  app.post("/orders", (_, response) => {
    runs++;
    response.status(201).json({ made: true });
  });
  const server = createServer(app as Parameters<typeof createServer>[1]);
  const url = await listening(server);
  const asked = (host: string) =>
    new Promise<number | undefined>((resolve, reject) => {
      const headers = { Host: host, "Idempotency-Key": "order-1" };
      request(`${url}/orders`, { method: "POST", headers }, (answer) => {
        answer.resume();
        resolve(answer.statusCode);
      })
        .on("error", reject)
        .end();
    });
  expect([await asked("a.shop"), await asked("b.shop"), await asked("A.shop")]).toEqual([201, status, 201]);
  expect(runs).toBe(1);
  server.close();
});

/** An Express server whose middleware has these options. Returns how to send a raw path and headers, and the number of runs. */
async function shop(options: Partial<MiddlewareOptions<express.Request>> = {}) {
  const app = express();
  let runs = 0;
  app.use(express.json(), forExpress.idempotency({ semel: new FakeSemel().semel(), ...options }));
  app.use((_, response) => {
    runs++;
    response.status(201).json({ made: true });
  });
  const server = createServer(app as Parameters<typeof createServer>[1]);
  const { port } = new URL(await listening(server));
  const send = (path: string, headers: Record<string, string>) =>
    new Promise<number | undefined>((resolve, reject) => {
      request({ port, path, method: "POST", headers }, (answer) => {
        answer.resume();
        resolve(answer.statusCode);
      })
        .on("error", reject)
        .end();
    });
  return { send, runs: () => runs, close: () => server.close() };
}

test("nobody without a principal may use a key that is a principal's own", async () => {
  const semel = new FakeSemel().semel();
  const principal = (asked: express.Request) => asked.get("x-user");
  const { send, runs, close } = await shop({ semel, principal });
  const own = await principalKey("ann", "order-1");
  expect(own).toMatch(/^p-[0-9a-f]{64}$/);
  // Nobody takes the key before she does, and nobody reads her answer afterwards.
  expect(await send("/orders", { "Idempotency-Key": own })).toBe(400);
  expect(await send("/orders", { "Idempotency-Key": "order-1", "x-user": "ann" })).toBe(201);
  expect(await send("/orders", { "Idempotency-Key": own })).toBe(400);
  expect(runs()).toBe(1);
  // For a principal it is a key like any other, and so is what only resembles it.
  expect(await send("/orders", { "Idempotency-Key": own, "x-user": "bob" })).toBe(201);
  expect(await send("/orders", { "Idempotency-Key": own.toUpperCase() })).toBe(201);
  expect(await send("/orders", { "Idempotency-Key": `${own}0` })).toBe(201);
  expect(runs()).toBe(4);
  close();
});

test("the path counts as it was sent, not as it is decoded", async () => {
  const { send, runs, close } = await shop();
  const asked = (path: string) => send(path, { "Idempotency-Key": "file-1" });
  expect(await asked("/files/a%2Fb")).toBe(201);
  expect(await asked("/files/a/b")).toBe(422);
  expect(await asked("/files/a%2fb")).toBe(422);
  expect(await asked("/files/a%2Fb?x=1")).toBe(422);
  expect(await asked("/files/a%2Fb")).toBe(201);
  expect(runs()).toBe(1);
  close();
});
