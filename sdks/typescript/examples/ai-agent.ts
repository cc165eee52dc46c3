/** AI SDK: a model that forgets, words its call anew, and sends one mail all the same. The model is a script. */
import { Semel } from "@semel/client";
import { idempotentTool } from "@semel/client/ai";
import { type ToolSet, generateText, stepCountIs, tool } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { z } from "zod";

const semel = new Semel({ url: process.env["SIDECAR_URL"] ?? "http://127.0.0.1:8080/_semel" });
const sent: string[] = [];
const calls = [
  { to: "ada@example.com", subject: "Invoice 7", note: "Please find it attached." },
  { to: "ada@example.com", subject: "Invoice 7", note: "You will find it attached." },
];

const sendEmail = tool({
  description: "Sends a mail.",
  inputSchema: z.object({ to: z.string(), subject: z.string(), note: z.string().optional() }),
  execute: ({ to }) => {
    sent.push(to);
    return `sent to ${to}`;
  },
});

const safe = (chat: string) => idempotentTool("sendEmail", sendEmail, { semel, identity: ["to", "subject"], conversation: chat });

function script(): MockLanguageModelV3 {
  const usage = { inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 1, text: 1, reasoning: 0 } };
  const turns = calls.map((input, turn) => ({
    content: [{ type: "tool-call" as const, toolCallId: `call-${turn}`, toolName: "sendEmail", input: JSON.stringify(input) }],
    finishReason: { unified: "tool-calls" as const, raw: undefined },
    usage,
    warnings: [],
  }));
  const end = { content: [{ type: "text" as const, text: "Done." }], finishReason: { unified: "stop" as const, raw: undefined }, usage, warnings: [] };
  return new MockLanguageModelV3({ doGenerate: [...turns, end] });
}

async function conversation(tools: ToolSet): Promise<unknown[]> {
  const { steps } = await generateText({ model: script(), tools, prompt: "Send Ada her invoice.", stopWhen: stepCountIs(5) });
  return steps.flatMap((step) => step.toolResults.map((result) => result.output as unknown));
}

async function mails(tools: ToolSet): Promise<number> {
  const before = sent.length;
  await conversation(tools);
  return sent.length - before;
}

export async function main(chat: string): Promise<string[]> {
  const counted = `without: ${await mails({ sendEmail })} emails, with: ${await mails({ sendEmail: safe(chat) })}`;
  return [counted, String((await conversation({ sendEmail: safe(chat) })).at(-1))];
}
