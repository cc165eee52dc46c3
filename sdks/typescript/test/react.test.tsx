// @vitest-environment happy-dom
/** The form of the guide, in a browser's own terms: one key for all clicks of one submission. */
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { OrderForm } from "../examples/react-form.js";
import { Client } from "../src/index.js";

afterEach(cleanup);

test("a form that is submitted again sends the same key until it is done", async () => {
  const keys: string[] = [];
  let down = true;
  const client = new Client({
    retry: { maxAttempts: 2, base: 1, cap: 2 },
    fetch: (_url, init) => {
      keys.push(new Headers(init.headers).get("idempotency-key") ?? "");
      return down ? Promise.reject(new TypeError("no network")) : Promise.resolve(new Response("{}", { status: 201 }));
    },
  });
  const { rerender } = render(<OrderForm client={client} />);
  fireEvent.click(screen.getByRole("button"));
  await waitFor(() => expect(screen.getByRole("status").textContent).toBe("failed"));
  rerender(<OrderForm client={client} />);
  fireEvent.click(screen.getByRole("button", { name: "Try again" }));
  await waitFor(() => expect(keys.length).toBe(4));
  await waitFor(() => expect(screen.getByRole("status").textContent).toBe("failed"));
  down = false;
  fireEvent.click(screen.getByRole("button"));
  await waitFor(() => expect(screen.getByRole("status").textContent).toBe("done"));
  expect(keys.length).toBe(5);
  expect(new Set(keys).size).toBe(1);
  fireEvent.click(screen.getByRole("button"));
  await waitFor(() => expect(keys.length).toBe(6));
  expect(keys[5]).not.toBe(keys[0]);
});
