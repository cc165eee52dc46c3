/** Fastify: a POST with an Idempotency-Key runs once. */
import { Semel } from "@semel/client";
import { idempotency, leaseOf } from "@semel/client/fastify";
import { fastify } from "fastify";

const semel = new Semel({ url: process.env["SIDECAR_URL"] ?? "", terms: { derive: ["bank"] } });
const charges: unknown[] = [];

export const app = fastify();
await app.register(idempotency, {
  semel,
  scope: "charges",
  principal: (request) => request.headers["x-user"]?.toString(),
});

app.post("/charges", async (request, reply) => {
  const order = request.body as { order: string; cents: number };
  if (order.cents < 0) return reply.code(422).send({ error: "nothing to charge" });
  charges.push({ ...order, key: await leaseOf(request)?.deriveKey("bank") });
  if (order.cents === 0) throw new Error("after the charge");
  return reply.code(201).send({ charge: `ch_${charges.length}` });
});

app.get("/charges", () => charges);
