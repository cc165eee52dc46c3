/** Tools of the AI SDK: a call that a model makes again acts once, and what it can't know it is told in words. */
import { readFileSync } from "node:fs";
import { type Tool, type ToolExecutionOptions, asSchema, generateText, jsonSchema, stepCountIs, tool } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { type Refusal, type ToolOptions, idempotentTool } from "../src/ai.js";
import { EffectFailed, Final, InDoubt, NoEffect, PayloadInvalid, SemelError } from "../src/errors.js";
import { FakeSemel } from "../src/testing.js";
import { NEW_CALL, type Reason, refusal } from "../src/tool-words.js";
import { callKey, fieldDigest } from "../src/tools.js";

interface Vectors {
  new_call: string;
  cases: {
    name: string;
    conversation: string;
    tool: string;
    identity: Record<string, unknown>;
    new_call: string;
    key: string;
    fields: { value: unknown; digest: string }[];
  }[];
  words: { reason: Reason; tool: string; fields: string[]; known: boolean; new_call: string; text: string }[];
}
const VECTORS = JSON.parse(readFileSync(new URL("../../../spec/vectors/tools.json", import.meta.url), "utf8")) as Vectors;

const ADA = { to: "ada", subject: "Invoice 7" };
const words = (reason: Reason, fields: string[] = [], known = true) => refusal(reason, "sendEmail", fields, known, "newCall").words;

let fake: FakeSemel;
let sent: string[];
let thrown: unknown;
beforeEach(() => {
  fake = new FakeSemel();
  sent = [];
  thrown = undefined;
});

const sendEmail = tool({
  description: "Sends a mail.",
  inputSchema: z.object({ to: z.string(), subject: z.string(), note: z.string().optional(), cc: z.string().optional() }),
  execute: ({ to, note }) => {
    sent.push(note ?? "");
    if (thrown !== undefined) throw thrown; // eslint-disable-line @typescript-eslint/only-throw-error
    return `mail ${sent.length} to ${to}`;
  },
});

function safe(options: Partial<ToolOptions> = {}): Tool {
  const identity = options.ignore ? {} : { identity: ["to", "subject"] };
  return idempotentTool("sendEmail", sendEmail as Tool, { semel: fake.semel(), conversation: "t-1", ...identity, ...options });
}

async function call(given: Tool, input: Record<string, unknown>, context: Partial<ToolExecutionOptions> = {}): Promise<unknown> {
  return (await given.execute?.(input, { toolCallId: "c", messages: [], ...context })) as unknown;
}

describe("a tool", () => {
  test("that is called again gives its first result", async () => {
    for (let turn = 0; turn < 3; turn++) expect(await call(safe(), { ...ADA, note: "n" })).toBe("mail 1 to ada");
    expect(await call(safe({ conversation: "t-2" }), { ...ADA, note: "n" })).toBe("mail 2 to ada");
    expect(await call(safe(), { ...ADA, to: "bob" })).toBe("mail 3 to bob");
  });

  test("that is called in other words says so, and how to make a new call", async () => {
    const given = safe({ ignore: ["note", "cc"] });
    await call(given, { ...ADA, note: "a" });
    expect(await call(given, { ...ADA, note: "b" })).toBe(words("reworded", ["note"]));
    expect(await call(given, { ...ADA, cc: "eve" })).toBe(words("reworded", ["cc", "note"]));
    const again = { ...ADA, note: "b", newCall: "two" };
    expect([await call(given, again), await call(given, again)]).toEqual(["mail 2 to ada", "mail 2 to ada"]);
    expect(await call(given, { ...again, newCall: "three" })).toBe("mail 3 to ada");
  });

  test("takes true for a new call, as the gateway does", async () => {
    const given = safe();
    for (const [note, newCall, result] of [
      ["a", undefined, "mail 1 to ada"],
      ["b", true, "mail 2 to ada"],
      ["b", "true", "mail 2 to ada"],
      ["a", true, "mail 3 to ada"],
      ["a", false, "mail 1 to ada"],
      ["a", "false", "mail 1 to ada"],
      ["a", null, "mail 1 to ada"],
    ]) {
      expect(await call(given, { ...ADA, note, newCall })).toBe(result);
    }
    expect(fake.state("sendEmail", await callKey("sendEmail", "t-1", { ...ADA, note: "b" }, "true"))).toBe("completed");
  });

  test("says what another kind of newCall should be", async () => {
    expect(await call(safe(), { ...ADA, newCall: 7 })).toBe(words("malformed"));
    expect([sent, fake.calls]).toEqual([[], []]);
  });

  test("whose outcome nobody saw says so", async () => {
    thrown = new Error("no reply");
    await expect(call(safe(), ADA)).rejects.toBe(thrown);
    expect(await call(safe(), ADA)).toBe(words("in_doubt"));
    expect(await call(safe(), { ...ADA, note: "b", cc: "c" })).toBe(words("reworded", ["note", "cc"], false));
    expect(sent.length).toBe(1);
  });

  test("that still runs says so", async () => {
    const semel = fake.semel({ retry: { base: 1, cap: 5, totalTimeout: 50 } });
    const key = await callKey("sendEmail", "t-1", ADA, "");
    await semel.run({ scope: "sendEmail", key, payload: {} }, async () => {
      expect(await call(safe({ semel }), ADA)).toBe(words("running"));
    });
    expect(sent).toEqual([]);
  });

  test("whose result can't be kept says so, and gives it to the first", async () => {
    const results = ["x".repeat(2_000_000), () => 1, 2n];
    const given = idempotentTool(
      "load",
      tool({ inputSchema: z.object({ page: z.number() }), execute: ({ page }) => results[page] }) as Tool,
      { semel: fake.semel(), conversation: "t" },
    );
    for (const page of [0, 1, 2]) {
      expect(await call(given, { page })).toBe(results[page]);
      expect(await call(given, { page })).toBe(refusal("not_kept", "load", [], true, "newCall").words);
    }
  });

  test("that returns nothing does so again", async () => {
    let runs = 0;
    const execute = () => {
      runs++;
    };
    const ping = tool({ inputSchema: z.object({}), execute }) as Tool;
    const given = idempotentTool("ping", ping, { semel: fake.semel(), conversation: "t" });
    expect([await call(given, {}), await call(given, {}), runs]).toEqual([null, null, 1]);
  });

  test("throws its own errors, and what a model can't act on", async () => {
    thrown = new InDoubt(409, { code: "idempotency_in_doubt" });
    await expect(call(safe(), ADA)).rejects.toBe(thrown);
    thrown = new NoEffect("nothing was sent");
    for (let turn = 0; turn < 2; turn++) await expect(call(safe(), { ...ADA, to: "bob" })).rejects.toBe(thrown);
    thrown = new Final({ because: "blocked" });
    for (let turn = 0; turn < 2; turn++) await expect(call(safe(), { ...ADA, to: "eve" })).rejects.toBeInstanceOf(EffectFailed);
    expect(sent.length).toBe(4);
    await expect(call(safe(), { ...ADA, note: 2 ** 60 })).rejects.toBeInstanceOf(PayloadInvalid);
    await expect(call(safe({ conversation: () => undefined }), ADA)).rejects.toBeInstanceOf(SemelError);
    await expect(call(safe({ conversation: "" }), ADA)).rejects.toThrow("no conversation");
    expect(sent.length).toBe(4);
  });

  test("says it in the program's words where it has some", async () => {
    const told: Refusal[] = [];
    const given = safe({ tell: (refused) => (told.push(refused), { refused: refused.reason }) });
    await call(given, ADA);
    expect(await call(given, { ...ADA, cc: "eve" })).toEqual({ refused: "reworded" });
    expect(told[0]?.fields).toEqual(["cc"]);
  });

  test("follows terms, its own before the client's", async () => {
    thrown = new Error("before anything was sent");
    for (const given of [safe({ crash: "takeover" }), safe({ semel: fake.semel({ terms: { crash: "takeover" } }) })]) {
      for (let turn = 0; turn < 2; turn++) await expect(call(given, ADA)).rejects.toBe(thrown);
    }
    expect(sent.length).toBe(4);
  });

  test("reads the conversation from the options of the call", async () => {
    const given = safe({ conversation: ({ experimental_context: context }) => (context as { chat: string }).chat });
    for (const chat of ["a", "a", "b"]) await call(given, ADA, { experimental_context: { chat } });
    expect(sent.length).toBe(2);
  });

  test("gives the answer of an operator as it is", async () => {
    const key = await callKey("sendEmail", "t-1", ADA, "");
    await fake.semel().run({ scope: "sendEmail", key, payload: {} }, () => "sent by hand");
    expect([await call(safe(), ADA), sent]).toEqual(["sent by hand", []]);
  });

  test("that gives several values keeps the last", async () => {
    let runs = 0;
    async function* execute({ page }: { page: number }) {
      runs++;
      await Promise.resolve();
      yield `half of ${page}`;
      yield `page ${page}`;
    }
    const given = idempotentTool("load", tool({ inputSchema: z.object({ page: z.number() }), execute }) as Tool, {
      semel: fake.semel(),
      conversation: "t",
    });
    expect([await call(given, { page: 1 }), await call(given, { page: 1 }), runs]).toEqual(["page 1", "page 1", 1]);
  });

  test("leaves without running when its caller does", async () => {
    const signal = AbortSignal.abort(new Error("left"));
    await expect(call(safe(), ADA, { abortSignal: signal })).rejects.toThrow("left");
    expect(sent).toEqual([]);
  });

  test("can't have every call under one key", async () => {
    for (const options of [{ identity: ["whom"] }, { ignore: ["whom"] }]) {
      await expect(call(safe(options), ADA)).rejects.toThrow("no argument whom");
    }
    for (const options of [{ identity: [] }, { ignore: ["to", "subject", "note", "cc"] }]) {
      await expect(call(safe(options), ADA)).rejects.toThrow("the same key");
    }
    expect(() => safe({ identity: ["to"], ignore: ["note"] })).toThrow("not both");
    const elsewhere = tool({ inputSchema: z.object({}) }) as Tool;
    expect(() => idempotentTool("elsewhere", elsewhere, { semel: fake.semel(), conversation: "t" })).toThrow("no execute");
    expect(sent).toEqual([]);
  });
});

describe("what the model sees", () => {
  test("has the argument for a new call, and is checked as before", async () => {
    const schema = asSchema(safe().inputSchema);
    const described = await schema.jsonSchema;
    expect(Object.keys(described.properties ?? {})).toEqual(["to", "subject", "note", "cc", "newCall"]);
    expect(described.required).toEqual(["to", "subject"]);
    expect(described.properties?.["newCall"]).toEqual({ type: "string", description: NEW_CALL });
    expect(NEW_CALL).toBe(VECTORS.new_call);
    expect(await schema.validate?.({ ...ADA, newCall: "b" })).toMatchObject({ success: true, value: { ...ADA, newCall: "b" } });
    for (const newCall of [true, 7]) {
      expect(await schema.validate?.({ ...ADA, newCall })).toMatchObject({ success: true, value: { ...ADA, newCall } });
    }
    for (const wrong of [{ to: 1 }, null]) expect(await schema.validate?.(wrong)).toMatchObject({ success: false });
  });

  test("has an argument of the tool's own by that name once, and the tool gets it", async () => {
    const seen: unknown[] = [];
    const inputSchema = jsonSchema<{ text: string; newCall?: string }>({
      type: "object",
      properties: { text: { type: "string" }, newCall: { type: "string", description: "own" } },
    });
    const own = tool({ inputSchema, execute: (input) => (seen.push(input), "noted") }) as Tool;
    const given = idempotentTool("note", own, { semel: fake.semel(), conversation: "t" });
    expect((await asSchema(given.inputSchema).jsonSchema).properties?.["newCall"]).toMatchObject({ description: "own" });
    for (const newCall of [undefined, undefined, "b"]) await call(given, { text: "x", newCall });
    expect(seen).toEqual([{ text: "x" }, { text: "x", newCall: "b" }]);
  });

  test("is the words, in the messages of the SDK", async () => {
    const usage = { inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 1, text: 1, reasoning: 0 } };
    const inputs = [{ note: "a" }, { note: "a" }, { note: "b" }, { note: "b", newCall: 7 }, { note: "b", newCall: true }];
    const turns = inputs.map((input, turn) => ({
      content: [{ type: "tool-call" as const, toolCallId: `c-${turn}`, toolName: "sendEmail", input: JSON.stringify({ ...ADA, ...input }) }],
      finishReason: { unified: "tool-calls" as const, raw: undefined },
      usage,
      warnings: [],
    }));
    const content = [{ type: "text" as const, text: "Done." }];
    const end = { content, finishReason: { unified: "stop" as const, raw: undefined }, usage, warnings: [] };
    const model = new MockLanguageModelV3({ doGenerate: [...turns, end] });
    await generateText({ model, tools: { sendEmail: safe() }, prompt: "go", stopWhen: stepCountIs(9) });
    const results = model.doGenerateCalls.at(-1)?.prompt.filter((message) => message.role === "tool").flatMap((message) => message.content);
    expect(results?.map((part) => part.type === "tool-result" && part.output)).toEqual([
      { type: "text", value: "mail 1 to ada" },
      { type: "text", value: "mail 1 to ada" },
      { type: "text", value: words("reworded", ["note"]) },
      { type: "text", value: words("malformed") },
      { type: "text", value: "mail 2 to ada" },
    ]);
    expect(model.doGenerateCalls[0]?.tools?.[0]).toMatchObject({ inputSchema: { properties: { newCall: { type: "string" } } } });
  });
});

test.each(VECTORS.cases)("the key of $name is that of other languages", async (given) => {
  const key = await callKey(given.tool, given.conversation, given.identity, given.new_call);
  expect(key).toBe(given.key);
  for (const { value, digest } of given.fields) expect(await fieldDigest(key, value)).toBe(digest);
});

test.each(VECTORS.words)("the words for $reason are those of other languages", (given) => {
  const made = refusal(given.reason, given.tool, given.fields, given.known, given.new_call);
  expect([made.words, made.reason, made.fields]).toEqual([given.text, given.reason, given.fields]);
});
