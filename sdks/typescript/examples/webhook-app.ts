/** Express: Stripe delivers an event again and again; the order is shipped once. */
import type { Semel } from "@semel/client";
import type { Verifier, WebhookEvent } from "@semel/client/webhooks";
import { webhook } from "@semel/client/webhooks-node";
import express, { type Express } from "express";

export const shipped: string[] = [];

interface Told {
  type: string;
  data: { object: { id: string } };
}

function handle(event: WebhookEvent): void {
  const told = event.json() as Told;
  if (told.type === "checkout.session.completed") shipped.push(told.data.object.id);
}

/** `app(stripe([newSecret, oldSecret]), new Semel({ url })).listen(3000)` */
export function app(verifier: Verifier, semel: Semel): Express {
  const made = express();
  made.post("/stripe", webhook(verifier, { semel }, handle)); // in front of the parsers: the signature is of the raw body
  made.use(express.json());
  return made;
}
