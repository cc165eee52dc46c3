/** BullMQ: an order is charged once, however often its job runs or is added. */
import { Semel, currentLease } from "@semel/client";
import { idempotentProcessor } from "@semel/client/bullmq";
import { type ConnectionOptions, type Job, UnrecoverableError, Worker } from "bullmq";

interface Order {
  order: string;
  cents: number;
}

const semel = new Semel({ url: process.env["SIDECAR_URL"] ?? "", terms: { derive: ["bank"] } });
export const charges: unknown[] = [];

async function charge(job: Job<Order, string>): Promise<string> {
  if (job.data.cents > 10_000) throw new UnrecoverableError("declined"); // kept: another job is declined too
  charges.push({ ...job.data, key: await currentLease()?.deriveKey("bank") });
  return `ch_${charges.length}`;
}

export const start = (queue: string, connection: ConnectionOptions): Worker<Order, string> =>
  new Worker(queue, idempotentProcessor(charge, { semel, key: (job) => `charge-${job.data.order}` }), { connection });
