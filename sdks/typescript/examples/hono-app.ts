/** Hono: a POST with an Idempotency-Key runs once. */
import { Semel } from "@semel/client";
import { type Variables, idempotency } from "@semel/client/hono";
import { Hono } from "hono";

const semel = new Semel({ url: process.env["SIDECAR_URL"] ?? "", terms: { derive: ["bank"] } });
const charges: unknown[] = [];

export const app = new Hono<{ Variables: Variables }>();
app.use(idempotency({ semel, scope: "charges", principal: (c) => c.req.header("x-user") }));

app.post("/charges", async (c) => {
  const order = await c.req.json<{ order: string; cents: number }>();
  if (order.cents < 0) return c.json({ error: "nothing to charge" }, 422);
  charges.push({ ...order, key: await c.get("semelLease")?.deriveKey("bank") });
  if (order.cents === 0) throw new Error("after the charge");
  return c.json({ charge: `ch_${charges.length}` }, 201);
});

app.get("/charges", (c) => c.json(charges));
