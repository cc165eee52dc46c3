/** A route on Node (Next.js, SvelteKit, Hono), no sidecar: a POST with an Idempotency-Key runs once. */
import { open } from "@semel/client/open";
import { withIdempotency } from "@semel/client/web";

export const semel = await open(process.env["STORE_URL"] ?? "memory://", { terms: { crash: "hold" } });
export const charges: unknown[] = [];

async function charge(request: Request): Promise<Response> {
  charges.push(await request.json());
  return Response.json({ charge: `ch_${charges.length}` }, { status: 201 });
}

export const POST = withIdempotency(charge, { semel, scope: "charges" });
