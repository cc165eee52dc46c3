/** The drop-in `fetch`: alone, and under the clients of OpenAI and Stripe, against a server that loses replies. */
import { type IncomingMessage, type Server, type ServerResponse, createServer } from "node:http";
import { afterEach, describe, expect, test } from "vitest";
import { GaveUp, type RetryEvent, createFetch } from "../src/index.js";
import { openai, stripe } from "../examples/drop-in-fetch.js";
import { body, freePort, listening } from "./support/servers.js";

const QUICK = { base: 1, cap: 5 };
let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

interface Seen {
  key: string | undefined;
  method: string | undefined;
  type: string | undefined;
  body: string;
}

/** Does what it is asked once for each key, and answers as `say` has it. */
async function serving(say: (response: ServerResponse, attempt: number, request: IncomingMessage) => void) {
  const seen: Seen[] = [];
  const effects = new Map<string, number>();
  server = createServer((request, response) => {
    void body(request).then((text) => {
      const key = request.headersDistinct["idempotency-key"]?.join();
      if (key !== undefined && !seen.some((earlier) => earlier.key === key)) effects.set(key, (effects.get(key) ?? 0) + 1);
      seen.push({ key, method: request.method, type: request.headers["content-type"], body: text });
      say(response, seen.length, request);
    });
  });
  const url = await listening(server);
  return { url, seen, effects };
}

/** The first reply never comes, the second breaks off, the third is a 503. */
const lossy = (answer: object, type = "application/json") => (response: ServerResponse, attempt: number) => {
  if (attempt === 1) response.socket?.destroy();
  else if (attempt === 2) response.writeHead(200, { "Content-Type": type, "Content-Length": 1000 }).write("{", () => response.socket?.destroy());
  else if (attempt === 3) response.writeHead(503).end();
  else response.writeHead(200, { "Content-Type": type }).end(JSON.stringify(answer));
};

describe("createFetch", () => {
  test("keeps one key over lost replies, answers that break off and errors", async () => {
    const { url, seen, effects } = await serving(lossy({ id: "ch_1" }));
    const answer = await createFetch({ retry: QUICK })(url, { method: "POST", body: "{}" });
    expect([answer.status, answer.url, await answer.json()]).toEqual([200, `${url}/`, { id: "ch_1" }]);
    expect([seen.length, new Set(seen.map(({ key }) => key)).size, effects.size]).toEqual([4, 1, 1]);
  });

  test("takes the key of the request, else the caller's, else makes one", async () => {
    const { url, seen } = await serving((response) => response.end());
    const fetch = createFetch({ key: (request) => request.headers.get("x-order") ?? undefined });
    const post = (headers: Record<string, string>) => fetch(url, { method: "POST", headers });
    await post({ "Idempotency-Key": "of the request", "X-Order": "ord-1" });
    await post({ "X-Order": "ord-1" });
    await post({});
    await fetch(url);
    await fetch(new Request(url, { method: "PUT", body: "text", headers: { "Idempotency-Key": "k" } }));
    expect(seen.map(({ key }) => key)).toEqual(["of the request", "ord-1", expect.stringMatching(/^idem_/), undefined, "k"]);
    expect(seen[4]).toMatchObject({ method: "PUT", body: "text" });
  });

  test("sends the same bytes each time, also of a form and of a stream", async () => {
    const { url, seen } = await serving((response, attempt) => response.writeHead(attempt % 2 === 1 ? 503 : 200).end());
    const fetch = createFetch({ retry: QUICK });
    const form = new FormData();
    form.set("file", new Blob(["content"]), "a.txt");
    await fetch(url, { method: "POST", body: form });
    await fetch(url, { method: "POST", body: new Blob(["streamed"]).stream(), duplex: "half" } as RequestInit);
    expect(seen.length).toBe(4);
    expect(seen[0]!.type).toMatch(/^multipart\/form-data; boundary=/);
    expect(seen[1]).toEqual(seen[0]);
    expect(seen[3]).toEqual(seen[2]);
    expect(seen[2]!.body).toBe("streamed");
  });

  test("gives the last answer where there is one, and says so to its hooks", async () => {
    const { url, seen } = await serving((response) => response.writeHead(503).end("no"));
    const events: RetryEvent[] = [];
    const fetch = createFetch({ retry: { ...QUICK, maxAttempts: 3, onGiveUp: (event) => events.push(event) } });
    const answer = await fetch(url, { method: "POST" });
    expect([answer.status, await answer.text(), seen.length, events.length]).toEqual([503, "no", 3, 1]);
  });

  test("throws GaveUp, with the key, where there is no answer", async () => {
    const fetch = createFetch({ retry: { ...QUICK, maxAttempts: 2 } });
    const error = await fetch(`http://127.0.0.1:${await freePort()}`, { method: "POST" }).catch((found: unknown) => found);
    expect(error).toBeInstanceOf(GaveUp);
    expect(error).toMatchObject({ attempts: 2, unknown: false, key: expect.stringMatching(/^idem_/) as string });
  });

  test("ends with its signal, and with its time where one is set", async () => {
    const { url, seen } = await serving((response, attempt) => {
      if (attempt === 3) response.end("late");
    });
    await expect(createFetch()(url, { method: "POST", signal: AbortSignal.timeout(100) })).rejects.toThrow(/timeout/i);
    expect(seen.length).toBe(1);
    const answer = await createFetch({ retry: { ...QUICK, attemptTimeout: 150 } })(url, { method: "POST" });
    expect([await answer.text(), seen.length, seen[1]!.key === seen[2]!.key]).toEqual(["late", 3, true]);
  });

  test.each(["text/event-stream", "application/octet-stream"])("hands a stream over as it comes: %s", async (type) => {
    let proceed: () => void = () => undefined;
    const first = type === "text/event-stream" ? "data: 1\n\n" : "x".repeat(2 * 1024 * 1024);
    const { url } = await serving((response) => {
      response.writeHead(200, { "Content-Type": type }).write(first);
      proceed = () => response.end("last");
    });
    const answer = await createFetch()(url, { method: "POST" });
    proceed();
    const text = await answer.text();
    expect([text.length, text.endsWith("last")]).toEqual([first.length + 4, true]);
  });
});

test("OpenAI's client keeps one key over lost replies", async () => {
  const choices = [{ index: 0, message: { role: "assistant", content: "done" } }];
  const { url, seen, effects } = await serving(lossy({ id: "c-1", object: "chat.completion", choices }));
  const client = openai(`${url}/v1`);
  const answer = await client.chat.completions.create({ model: "m", messages: [{ role: "user", content: "go" }] });
  expect(answer.choices[0]?.message.content).toBe("done");
  expect([seen.length, effects.size]).toEqual([4, 1]);
  expect(seen[0]!.key).toMatch(/^idem_/);
});

test("OpenAI's client gets its stream", async () => {
  const chunk = { id: "c-1", object: "chat.completion.chunk", choices: [{ index: 0, delta: { content: "done" } }] };
  const { url, seen } = await serving((response, attempt) => {
    if (attempt === 1) response.socket?.destroy();
    else response.writeHead(200, { "Content-Type": "text/event-stream" }).end(`data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`);
  });
  const stream = await openai(`${url}/v1`).chat.completions.create({ model: "m", messages: [], stream: true });
  const parts: unknown[] = [];
  for await (const part of stream) parts.push(part.choices[0]?.delta.content);
  expect([parts, seen.length, seen[0]!.key === seen[1]!.key]).toEqual([["done"], 2, true]);
});

test("Stripe's client keeps one key over lost replies, its own where it has one", async () => {
  const { url, seen, effects } = await serving(lossy({ id: "pi_1", object: "payment_intent" }));
  const client = stripe("127.0.0.1", Number(new URL(url).port));
  const intent = await client.paymentIntents.create({ amount: 500, currency: "eur" });
  expect([intent.id, seen.length, effects.size]).toEqual(["pi_1", 4, 1]);
  await client.paymentIntents.create({ amount: 500, currency: "eur" }, { idempotencyKey: "ord-1" });
  expect(seen.at(-1)!.key).toBe("ord-1");
  expect(seen[0]!.body).toBe("amount=500&currency=eur");
});
