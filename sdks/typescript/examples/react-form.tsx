/** A form that may be submitted again: one key for as long as it is the same submission. */
import { type Client, newKey } from "@semel/client";
import { useCallback, useRef, useState } from "react";

type Status = "idle" | "sending" | "done" | "failed";

export function useIdempotentSubmit(client: Client, url: string) {
  // Made once, when the form appears. A re-render doesn't make another, and neither does a retry.
  const key = useRef<string>(undefined);
  key.current ??= newKey();
  const [status, setStatus] = useState<Status>("idle");

  const submit = useCallback(
    async (fields: Record<string, string>) => {
      setStatus("sending");
      try {
        const answer = await client.post(url, { json: fields, key: key.current ?? newKey() });
        setStatus(answer.ok ? "done" : "failed");
        if (answer.ok) key.current = newKey(); // what comes next is another submission
      } catch {
        setStatus("failed"); // the next click asks with the same key
      }
    },
    [client, url],
  );
  return { status, submit };
}

export function OrderForm({ client }: { client: Client }) {
  const { status, submit } = useIdempotentSubmit(client, "/orders");
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        const company = new FormData(event.currentTarget).get("company");
        void submit({ company: typeof company === "string" ? company : "" });
      }}
    >
      <input name="company" aria-label="company" />
      <button type="submit" disabled={status === "sending"}>
        {status === "failed" ? "Try again" : "Submit"}
      </button>
      <output>{status}</output>
    </form>
  );
}
