/** A job that is submitted twice and enqueued once. */
import { type Job, Queue } from "@semel/client/jobs";

const queue = new Queue({ url: process.env["SIDECAR_URL"] ?? "" }); // http://127.0.0.1:8080

export function orderCharge(order: string, cents: number): Promise<Job> {
  return queue.submit(
    "charge_customer",
    { order, cents },
    { idempotencyKey: `charge-${order}`, idempotencyTtlDays: 30 },
  );
}
