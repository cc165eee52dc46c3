/** Long work: the lease is renewed in the background, and progress survives the process. */
import { Semel } from "@semel/client";

const semel = new Semel({ url: process.env["SIDECAR_URL"] ?? "", terms: { leaseMs: 30_000 } });

export async function exportReport(report: string, pages: number, write: (page: number) => void): Promise<number> {
  const { value } = await semel.run({ scope: "export", key: report, payload: { pages } }, async (lease) => {
    const done = typeof lease?.lastCheckpoint === "number" ? lease.lastCheckpoint : 0;
    for (let page = done; page < pages; page++) {
      lease?.check(); // LeaseLost where another has taken over
      write(page);
      await lease?.saveCheckpoint(page + 1);
    }
    return pages;
  });
  return value;
}
