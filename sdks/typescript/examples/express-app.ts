/** Express: a POST with an Idempotency-Key runs once. */
import { Semel } from "@semel/client";
import { idempotency, leaseOf } from "@semel/client/express";
import express from "express";

const semel = new Semel({ url: process.env["SIDECAR_URL"] ?? "", terms: { derive: ["bank"] } });
const charges: unknown[] = [];

export const app = express();
app.use(express.json()); // before the middleware: it compares what was read
app.use(idempotency({ semel, scope: "charges", principal: (request) => request.get("x-user") }));

app.post("/charges", async (request, response) => {
  const order = request.body as { order: string; cents: number };
  if (order.cents < 0) {
    response.status(422).json({ error: "nothing to charge" });
    return;
  }
  charges.push({ ...order, key: await leaseOf(request)?.deriveKey("bank") });
  if (order.cents === 0) throw new Error("after the charge");
  response.status(201).json({ charge: `ch_${charges.length}` });
});

app.get("/charges", (_request, response) => {
  response.json(charges);
});
