/** A charge that is made once, whatever the network does. */
import { type Answer, Client, Conflict, GaveUp } from "@semel/client";

const client = new Client({ baseUrl: process.env["PAYMENTS_URL"] ?? "" });

export async function charge(order: string, cents: number): Promise<Answer | undefined> {
  try {
    return await client.post("/charges", { json: { order, cents }, key: `charge-${order}` });
  } catch (error) {
    if (error instanceof Conflict) throw error; // the key was used for another amount: a bug on our side
    if (!(error instanceof GaveUp)) throw error;
    // Ask again later, with the same key. `error.unknown` says whether it may have been charged.
    console.log(`no answer after ${error.attempts} attempts; may be done: ${String(error.unknown)}`);
    return undefined;
  }
}
