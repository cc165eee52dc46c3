/** Tokens go to other machines encrypted, or not at all. */
import { expect, test } from "vitest";
import { Api } from "../src/api.js";

const token = "0123456789abcdef";

test("a token in the clear to another machine is refused", () => {
  for (const url of ["http://semel.internal:8080", "http://192.0.2.1", "http://[2001:db8::1]:80", "http://127.0.0.1.evil.example"]) {
    expect(() => new Api({ url, token })).toThrow("in the clear");
    expect(() => new Api({ url })).not.toThrow();
  }
  for (const url of ["https://semel.internal", "http://127.0.0.1:8080", "http://localhost", "http://[::1]:8080"]) {
    expect(() => new Api({ url, token })).not.toThrow();
  }
});

test("a fetch of one's own decides itself", () => {
  const own: typeof fetch = (input, init) => fetch(input, init);
  expect(() => new Api({ url: "http://semel.internal:8080", token, fetch: own })).not.toThrow();
});
