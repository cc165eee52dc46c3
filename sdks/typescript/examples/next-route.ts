/** A route of Next.js (`app/charges/route.ts`): a POST with an Idempotency-Key runs once. */
import { Semel, currentLease } from "@semel/client";
import { withIdempotency } from "@semel/client/web";

const semel = new Semel({ url: process.env["SIDECAR_URL"] ?? "", terms: { derive: ["bank"] } });
const charges: unknown[] = [];

async function charge(request: Request): Promise<Response> {
  const order = (await request.json()) as { order: string; cents: number };
  if (order.cents < 0) return Response.json({ error: "nothing to charge" }, { status: 422 });
  charges.push({ ...order, key: await currentLease()?.deriveKey("bank") });
  if (order.cents === 0) throw new Error("after the charge");
  return Response.json({ charge: `ch_${charges.length}` }, { status: 201 });
}

export const POST = withIdempotency(charge, {
  semel,
  scope: "charges",
  principal: (request) => request.headers.get("x-user") ?? undefined,
});

export const GET = (): Response => Response.json(charges);
