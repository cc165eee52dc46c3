/** A caller that may crash at any moment: the key is on disk before the first byte is sent. */
import { Client } from "@semel/client";
import { Outbox } from "@semel/client/outbox";

const outbox = await Outbox.open(process.env["OUTBOX"] ?? "calls");
const client = new Client({ baseUrl: process.env["PAYMENTS_URL"] ?? "", outbox });
export const receipts = new Map<string, unknown>();

export async function charge(order: string, cents: number): Promise<void> {
  await client.call(order, async (call) => {
    const answer = await call.post("/charges", { json: { order, cents } });
    receipts.set(order, answer.json()); // keep it in here: once this has ended, the call is forgotten
  });
}

export async function finishWhatWasLeft(): Promise<void> {
  await client.resume(async (call) => {
    if (call.sent) receipts.set(call.name, (await call.send()).json());
  });
}
