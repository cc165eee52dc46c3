/** Webhooks: what a provider signed is believed, and handled once. */
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { type Server, createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { inspect } from "node:util";
import express from "express";
import fastify from "fastify";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { AnswerNotKept, EffectFailed, Final, NoEffect, ProblemError, Unrecorded } from "../src/errors.js";
import { FakeSemel } from "../src/testing.js";
import { type NodeHandler, type WebhookOptions, webhook, webhookPlugin } from "../src/webhooks-node.js";
import { type HandleOptions, type Provider, type RefusedReason, Verifier, WebhookEvent, WebhookRefused, github, standard, stripe } from "../src/webhooks.js";

interface Case {
  name: string;
  source: string;
  preset: Provider;
  secrets: string[];
  headers: [string, string][];
  body: string;
  now: number | null;
  tolerance: number | null;
  refused: RefusedReason | null;
  id: string | null;
}
const CASES = (JSON.parse(readFileSync(new URL("../../../spec/vectors/webhooks.json", import.meta.url), "utf8")) as { cases: Case[] }).cases;

const SECRET = "whsec_test";
const BODY = '{"id":"evt_1"}';

function signed(body = BODY, secret = SECRET): Record<string, string> {
  const seconds = String(Math.floor(Date.now() / 1000));
  const digest = createHmac("sha256", secret).update(`${seconds}.${body}`).digest("hex");
  return { "stripe-signature": `t=${seconds},v1=${digest}`, "content-type": "application/json" };
}

async function reasonOf(work: Promise<unknown>): Promise<string> {
  const error: unknown = await work.then(() => undefined, (thrown: unknown) => thrown);
  return error instanceof WebhookRefused ? error.reason : expect.fail(`not refused: ${String(error)}`);
}

let fake: FakeSemel;
beforeEach(() => {
  fake = new FakeSemel();
});

describe("a verifier", () => {
  test.each(CASES)("$name", async (given) => {
    const now = () => (given.now ?? 0) * 1000;
    const verifier = new Verifier(given.preset, given.secrets, { now, ...(given.tolerance === null ? {} : { tolerance: given.tolerance }) });
    const work = verifier.verify(given.headers, given.body);
    if (given.refused !== null) expect(await reasonOf(work)).toBe(given.refused);
    else expect(await work).toMatchObject({ id: given.id, provider: given.preset });
  });

  test("takes headers of any kind", async () => {
    const verifier = stripe(SECRET);
    for (const headers of [signed(), new Headers(signed()), Object.entries(signed())]) {
      expect((await verifier.verify(headers, Buffer.from(BODY))).json()).toEqual({ id: "evt_1" });
    }
    const twice = { ...signed(), "stripe-signature": [signed()["stripe-signature"]!, signed()["stripe-signature"]!] };
    expect(await reasonOf(verifier.verify(twice, BODY))).toBe("malformed");
  });

  test("has bounds", async () => {
    const small = stripe(SECRET, { maxBody: BODY.length });
    await small.verify(signed(), BODY);
    expect(await reasonOf(small.verify(signed(`${BODY} `), `${BODY} `))).toBe("too_large");
    const long = `${signed()["stripe-signature"] ?? ""},v1=${"0".repeat(5000)}`;
    expect(await reasonOf(small.verify({ "stripe-signature": long }, BODY))).toBe("malformed");
  });

  test("needs secrets", () => {
    for (const secrets of ["", [], [SECRET, ""], new Uint8Array()]) expect(() => stripe(secrets)).toThrow("secret");
    expect(() => standard("whsec_!")).toThrow("base64");
    expect(standard(new Uint8Array([1]))).toBeInstanceOf(Verifier);
  });

  test("shows nothing secret", async () => {
    const verifier = stripe(SECRET);
    const event = await verifier.verify(signed(), BODY);
    const error: unknown = await verifier.verify(signed(BODY, "other"), BODY).catch((thrown: unknown) => thrown);
    for (const shown of [inspect(verifier), inspect(event), inspect(error)]) expect(shown).not.toMatch(/whsec|v1=|stripe-signature/);
  });

  test("makes a key of any id", async () => {
    const key = (id: string) => new WebhookEvent("github", id, new Uint8Array(), new Headers()).key();
    expect(await key("72d3162e-cc78-11e3")).toBe("72d3162e-cc78-11e3");
    const odd = await Promise.all(["a b", "é", "x".repeat(300)].map(key));
    expect([new Set(odd).size, odd.every((each) => each.startsWith("id-"))]).toEqual([3, true]);
  });
});

describe("an event", () => {
  test("is handled once, for as long as providers deliver", async () => {
    let runs = 0;
    const verifier = stripe(SECRET);
    const options = { semel: fake.semel() };
    // A later delivery is signed anew, and may say more.
    const more = '{"id":"evt_1","pending_webhooks":1}';
    const given = [];
    for (const body of [BODY, BODY, more]) given.push(await verifier.run(signed(body), body, options, () => ({ handled: ++runs })));
    expect(given.map(({ value, replayed }) => [value, replayed])).toEqual([
      [{ handled: 1 }, false],
      [{ handled: 1 }, true],
      [{ handled: 1 }, true],
    ]);
    expect(fake.state("webhook-stripe", "evt_1")).toBe("completed");
    fake.advance(3 * 86_400_000);
    expect((await verifier.run(signed(), BODY, options, () => ++runs)).replayed).toBe(true);
    await verifier.run(signed(), BODY, { ...options, scope: "other" }, () => ++runs);
    expect(runs).toBe(2);
  });

  test("follows the terms of the client and of the endpoint", async () => {
    const options = { semel: fake.semel({ terms: { retentionMs: 60_000 } }) };
    const replayed = async (more: Partial<HandleOptions> = {}) =>
      (await stripe(SECRET).run(signed(), BODY, { ...options, ...more }, () => undefined)).replayed;
    expect(await replayed()).toBe(false);
    fake.advance(61_000);
    expect(await replayed({ retentionMs: 600_000 })).toBe(false);
    fake.advance(61_000);
    expect(await replayed()).toBe(true);
  });

  test("that is refused claims nothing", async () => {
    const work = stripe(SECRET).run(signed(BODY, "other"), BODY, { semel: fake.semel() }, () => expect.fail("it ran"));
    expect([await reasonOf(work), fake.calls]).toEqual(["signature", []]);
  });

  test("that fails for good is an error where no endpoint answers", async () => {
    const handle = () => {
      throw new Final("unknown customer");
    };
    await expect(stripe(SECRET).run(signed(), BODY, { semel: fake.semel() }, handle)).rejects.toBeInstanceOf(EffectFailed);
  });
});

const GONE = ["idempotency_answer_erased", "idempotency_answer_expired"];

type Send = (body?: string, headers?: Record<string, string>, method?: string) => Promise<Response>;
interface Ran {
  send: Send;
  stop: () => Promise<unknown>;
}
type Kind = (verifier: Verifier, options: HandleOptions, handle: (event: WebhookEvent) => unknown) => Promise<Ran>;

const over = (url: string): Send => (body = BODY, headers = signed(body), method = "POST") =>
  fetch(url, { method, headers, ...(method === "GET" ? {} : { body }) });

async function listening(server: Server): Promise<Ran> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = () => new Promise((resolve) => server.close(resolve).closeAllConnections());
  return { send: over(`http://127.0.0.1:${(server.address() as AddressInfo).port}/stripe`), stop };
}

const inExpress = (...before: express.RequestHandler[]): Kind => (...given) => {
  const app = express();
  app.all("/stripe", ...before, webhook(...given));
  return listening(createServer(app));
};

const KINDS: Record<string, Kind> = {
  web: (...given) => {
    const [verifier, options, handle] = given;
    const run = verifier.web(options, handle);
    const send: Send = async (body = BODY, headers = signed(body), method = "POST") => {
      const init = { method, headers, ...(method === "GET" ? {} : { body }) };
      // As frameworks answer for a handler that throws.
      return run(new Request("http://shop/stripe", init)).catch(() => new Response(null, { status: 500 }));
    };
    return Promise.resolve({ send, stop: () => Promise.resolve() });
  },
  express: inExpress(),
  "express after its raw parser": inExpress(express.raw({ type: "*/*" })),
  node: (verifier, options, handle) => {
    const handler: NodeHandler = webhook(verifier, { ...options, report: () => undefined }, handle);
    return listening(createServer((request, response) => handler(request, response)));
  },
  fastify: async (...given) => {
    const app = fastify();
    app.register(webhookPlugin(...given), { prefix: "/stripe" });
    return { send: over(`${await app.listen({ port: 0, host: "127.0.0.1" })}/stripe`), stop: () => app.close() };
  },
};

describe.each(Object.keys(KINDS))("an endpoint: %s", (kind) => {
  let ran: Ran;
  let seen: string[];
  let result: unknown;
  let thrown: Error | undefined;

  beforeEach(async () => {
    [seen, result, thrown] = [[], undefined, undefined];
    const handle = (event: WebhookEvent) => {
      seen.push(event.id);
      if (thrown) throw thrown;
      return result;
    };
    const semel = fake.semel({ retry: { base: 1, cap: 5, totalTimeout: 50 } });
    ran = await KINDS[kind]!(stripe(SECRET, { maxBody: 100 }), { semel }, handle);
  });
  afterEach(() => ran.stop());

  test("answers every delivery", async () => {
    for (const [number, given] of [undefined, "challenge", { a: 1 }].entries()) {
      result = given;
      const body = JSON.stringify({ id: `evt_${number}` });
      for (let turn = 0; turn < 2; turn++) {
        const answer = await ran.send(body);
        expect(answer.status).toBe(200);
        expect(await answer.text()).toBe(typeof given === "object" ? JSON.stringify(given) : (given ?? ""));
      }
    }
    expect(seen).toEqual(["evt_0", "evt_1", "evt_2"]);
  });

  test("refuses what is no webhook", async () => {
    expect((await ran.send("", {}, "GET")).status).toBe(kind === "fastify" ? 404 : 405);
    expect((await ran.send("x".repeat(101))).status).toBe(413);
    const wrong = await ran.send(BODY, signed(BODY, "other"));
    expect([wrong.status, await wrong.text()]).toEqual([401, "the webhook is refused: signature"]);
    expect((await ran.send(BODY, { "stripe-signature": "?" })).status).toBe(400);
    expect((await ran.send(BODY, {})).status).toBe(400);
    expect(seen).toEqual([]);
  });

  test("leaves an event to the next delivery where its handler fails", async () => {
    for (const error of [new Error("no database"), new NoEffect("no database")]) {
      thrown = error;
      expect((await ran.send()).status).toBe(500);
      expect(fake.state("webhook-stripe", "evt_1")).toBe("released");
    }
    thrown = undefined;
    expect([(await ran.send()).status, seen.length]).toEqual([200, 3]);
  });

  test.each([
    new Unrecorded("charged"),
    new AnswerNotKept(7),
    new EffectFailed("declined", true),
    ...GONE.map((code) => new ProblemError(410, { code, status: 410 })),
    new WebhookRefused("signature"),
  ])("leaves an event to the next delivery where a call inside its handler fails: $message", async (error) => {
    thrown = error;
    expect((await ran.send()).status).toBe(500);
    expect(fake.state("webhook-stripe", "evt_1")).toBe("released");
    thrown = undefined;
    expect([(await ran.send()).status, seen.length]).toEqual([200, 2]);
  });

  test.each(GONE)("has handled an event whose answer is gone: %s", async (code) => {
    const headers = { "Content-Type": "application/problem+json" };
    const semel = fake.semel({ fetch: () => Promise.resolve(new Response(JSON.stringify({ code, status: 410 }), { status: 410, headers })) });
    const forgetful = await KINDS[kind]!(stripe(SECRET), { semel }, () => expect.fail("it ran"));
    const answer = await forgetful.send();
    expect([answer.status, await answer.text()]).toEqual([200, ""]);
    await forgetful.stop();
  });

  test("is the program's to mend where it can't use its sidecar", async () => {
    const document = JSON.stringify({ code: "forbidden", status: 403 });
    const semel = fake.semel({ fetch: () => Promise.resolve(new Response(document, { status: 403 })) });
    const barred = await KINDS[kind]!(stripe(SECRET), { semel }, () => expect.fail("it ran"));
    expect((await barred.send()).status).toBe(500);
    await barred.stop();
  });

  test("ends the deliveries of what fails for good", async () => {
    thrown = new Final("unknown customer");
    expect([(await ran.send()).status, (await ran.send()).status, seen.length]).toEqual([200, 200, 1]);
  });

  test("asks to come again while the first delivery is handled", async () => {
    await fake.semel().run({ scope: "webhook-stripe", key: "evt_1" }, async () => {
      const answer = await ran.send();
      expect([answer.status, await answer.json()]).toMatchObject([409, { code: "idempotency_in_flight" }]);
    });
    expect(seen).toEqual([]);
  });
});

test("a body that was parsed before is an error of the program's, and none of the sender's", async () => {
  const errors: unknown[] = [];
  const app = express();
  app.use(express.json());
  app.post("/stripe", webhook(stripe(SECRET), { semel: fake.semel() }, () => expect.fail("it ran")));
  const told: express.ErrorRequestHandler = (error, _request, response, next) => {
    errors.push(error);
    response.sendStatus(500);
    if (response.headersSent) return;
    next(error);
  };
  app.use(told);
  const ran = await listening(createServer(app));
  expect((await ran.send()).status).toBe(500);
  expect(String(errors[0])).toMatch(/was parsed before/);
  await ran.stop();
});

describe("an error of a handler in Node's own server", () => {
  const failing = async (error: unknown, options: Partial<WebhookOptions>): Promise<number> => {
    const handle = () => {
      throw error;
    };
    const handler = webhook(stripe(SECRET), { semel: fake.semel(), ...options }, handle);
    const ran = await listening(createServer((request, response) => handler(request, response)));
    const { status } = await ran.send();
    await ran.stop();
    return status;
  };

  let server: Server;
  beforeEach(() => {
    server = createServer();
  });

  test("is told to the program", async () => {
    const told: unknown[] = [];
    const error = new Error("no database");
    expect(await failing(error, { report: (each) => told.push(each) })).toBe(500);
    expect(told).toEqual([error]);
  });

  test("is none where a sender leaves before its body is whole", async () => {
    const told: unknown[] = [];
    const handler = webhook(stripe(SECRET), { semel: fake.semel(), report: (each) => told.push(each) }, () => expect.fail("it ran"));
    const closed = new Promise<void>((resolve) => {
      server.on("request", (request, response) => {
        response.on("close", resolve);
        handler(request, response);
        request.once("data", () => socket.destroy());
      });
    });
    const ran = await listening(server);
    const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
    socket.write("POST /stripe HTTP/1.1\r\nHost: shop\r\nContent-Length: 20\r\n\r\n{}");
    await closed;
    await ran.stop();
    expect(told).toEqual([]);
  });

  test("is printed where the program doesn't ask for it", async () => {
    const printed = vi.spyOn(console, "error").mockImplementation(() => undefined);
    const error = new Error("no database");
    expect(await failing(error, {})).toBe(500);
    expect(printed.mock.calls).toEqual([[error]]);
    printed.mockRestore();
  });
});

test("GitHub's deliveries are told apart by a header", async () => {
  const signature = `sha256=${createHmac("sha256", "k").update(BODY).digest("hex")}`;
  const event = await github("k").verify({ "X-Hub-Signature-256": signature, "X-GitHub-Delivery": "d-1", "X-GitHub-Event": "push" }, BODY);
  expect([event.id, event.headers.get("x-github-event"), Buffer.from(event.body).toString()]).toEqual(["d-1", "push", BODY]);
});

test("the example", async () => {
  const { app, shipped } = await import("../examples/webhook-app.js");
  const ran = await listening(createServer(app(stripe(SECRET), fake.semel())));
  const body = '{"id":"evt_1","type":"checkout.session.completed","data":{"object":{"id":"cs_1"}}}';
  for (let turn = 0; turn < 3; turn++) expect((await ran.send(body)).status).toBe(200);
  expect((await ran.send(body, signed("other"))).status).toBe(401);
  expect(shipped).toEqual(["cs_1"]);
  await ran.stop();
});
