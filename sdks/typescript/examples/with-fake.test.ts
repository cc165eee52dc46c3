/** Testing your own code: a server in memory, no network, and replies that get lost. */
import type { Semel } from "@semel/client";
import { FakeSemel } from "@semel/client/testing";
import { expect, test } from "vitest";

async function welcome(semel: Semel, user: string, sent: string[]): Promise<number> {
  const { value } = await semel.run({ scope: "welcome mail", key: user }, () => sent.push(user));
  return value;
}

test("a lost reply sends no second mail", async () => {
  const fake = new FakeSemel();
  const sent: string[] = [];
  fake.loseReplies(2);
  expect(await welcome(fake.semel(), "ada", sent)).toBe(1);
  expect(await welcome(fake.semel(), "ada", sent)).toBe(1);
  expect(sent).toEqual(["ada"]);
  expect(fake.state("welcome mail", "ada")).toBe("completed");
});

test("after a day the key is new", async () => {
  const fake = new FakeSemel();
  const sent: string[] = [];
  await welcome(fake.semel(), "ada", sent);
  fake.advance(24 * 3_600_000 + 1);
  await welcome(fake.semel(), "ada", sent);
  expect(sent).toEqual(["ada", "ada"]);
});
