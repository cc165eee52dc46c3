/** A worker's function that runs once for each order, over the sidecar's protocol API. */
import { Final, Semel, Unknown, currentLease } from "@semel/client";

const semel = new Semel({ url: process.env["SIDECAR_URL"] ?? "" }); // http://127.0.0.1:8080/_semel

export interface Order {
  id: string;
  cents: number;
}
export class CardDeclined extends Error {}
export class NoReply extends Error {}
export const charges: { cents: number; key: string | undefined }[] = [];

async function askTheBank(cents: number, key: string | undefined): Promise<string> {
  await Promise.resolve();
  if (cents > 10_000) throw new CardDeclined();
  charges.push({ cents, key });
  return `ch_${charges.length}`;
}

async function chargeOrder(order: Order): Promise<{ charge: string }> {
  try {
    return { charge: await askTheBank(order.cents, await currentLease()?.deriveKey("bank")) };
  } catch (error) {
    if (error instanceof CardDeclined) throw new Final({ error: "declined" }); // kept: asking again is declined again
    if (error instanceof NoReply) throw new Unknown(); // sent, and no reply came: in doubt
    throw error;
  }
}

// Money can't be taken back: should this process vanish half-way, nobody repeats it until somebody has looked.
export const charge = semel.idempotent(
  { scope: "charge", key: (order) => order.id, crash: "hold", derive: ["bank"] },
  chargeOrder,
);
