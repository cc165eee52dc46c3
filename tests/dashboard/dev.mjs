// The page of `semel dev`: every scenario, with and without Semel, in light and in dark.

import { check, needed, open, shot, tabbed, usable } from "./page.mjs";

const done = (page) => page.locator("#scenes button:not([disabled])").first().waitFor();

/** Presses a button, and waits until its run has ended. → the labels of the diagram and the verdict */
async function play(page, name, { crash } = {}) {
  if (crash) await page.locator(`input[name=crash][value=${crash}]`).check();
  await done(page);
  const before = await page.locator("#picture").getAttribute("data-run");
  await page.locator("#scenes").getByRole("button", { name }).click();
  await page.waitForFunction((before) => document.getElementById("picture").dataset.run !== before, before);
  await page.waitForFunction(() => document.querySelector("#verdict p")?.textContent.match(/^\d+ requests?,/));
  await done(page);
  return {
    labels: await page.locator("#picture svg text").allTextContents(),
    verdict: await page.locator("#verdict p").textContent(),
  };
}

/** Whether the diagram has a label. It groups what happens at one moment: "7 × replayed" and "2 × replayed" are nine. */
function shows(labels, label) {
  const [, count, what] = label.match(/^(\d+) × (.+)$/) ?? [null, 0, label];
  if (!count) return labels.includes(label);
  const groups = labels.map((text) => text.match(/^(?:(\d+) × )?(.+)$/)).filter((group) => group?.[2] === what);
  return groups.reduce((sum, group) => sum + Number(group[1] ?? 1), 0) === Number(count);
}

/** No label may lie over another one. */
async function readable(page, where) {
  const overlaps = await page.evaluate(() => {
    const boxes = [...document.querySelectorAll("#picture svg text")].map((text) => ({ text: text.textContent, box: text.getBoundingClientRect() }));
    const frame = document.getElementById("picture").getBoundingClientRect();
    const found = boxes.filter(({ box }) => box.left < frame.left - 1 || box.right > frame.right + 1).map(({ text }) => `cut off: ${text}`);
    boxes.forEach((one, at) => boxes.slice(at + 1).forEach((other) => {
      const [a, b] = [one.box, other.box];
      if (a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom) found.push(`${one.text} over ${other.text}`);
    }));
    return found;
  });
  check(overlaps.length === 0, `${where}:\n${overlaps.join("\n")}`);
}

const STORIES = [
  ["Send a request", {}, ["claimed", "charging", "response stored"], "1 request, 1 charge.", "1 request, 1 charge."],
  ["Lose the reply, then retry", {}, ["201, lost", "no reply", "replayed"], "2 requests, 1 charge.", "2 requests, 2 charges."],
  ["Send another payload under the same key", {}, ["conflict 422"], "2 requests, 1 charge.", "2 requests, 2 charges."],
  ["Ten at once", {}, ["9 waiting", "9 × replayed"], "10 requests, 1 charge.", "10 requests, 10 charges."],
  ["Kill the owner", { crash: "takeover" }, ["killed", "lease lapsed", "taken over"], "2 requests, 2 runs."],
  // The retry waits for the lease, unless the machine was so slow that the lease had lapsed before.
  ["Kill the owner", { crash: "hold" }, ["killed", "lease lapsed", "in doubt"], "2 requests, 1 charge.", "2 requests, 2 charges."],
];

const slug = (name, crash) => `${name.toLowerCase().replaceAll(/[^a-z]+/g, "-")}${crash ? `-${crash}` : ""}`;

/** Resolves the record in the dashboard; the retry then gets what the operator said. */
async function resolve(context, page) {
  const [record] = await Promise.all([context.waitForEvent("page"), page.getByRole("link", { name: "Resolve the record" }).click()]);
  await record.getByText("In doubt").first().waitFor();
  await record.getByRole("button", { name: "Resolve" }).first().waitFor();
  await record.close();
}

export async function dev() {
  for (const scheme of ["light", "dark"]) {
    const { page, context, end } = await open({ scheme, height: 800 });
    const response = await page.goto(needed("URL"));
    const policy = response.headers()["content-security-policy"];
    check(policy.includes("script-src 'self'") && !policy.includes("unsafe"), `the policy: ${policy}`);
    await page.getByText("Both sidecars run").waitFor();
    await usable(page, "first look");
    await shot(page, `dev-first-${scheme}`);
    for (const [name, more, labels, verdict] of STORIES) {
      const told = await play(page, name, more);
      for (const label of labels) check(shows(told.labels, label), `${name}: no “${label}” in ${told.labels}`);
      check(told.verdict.startsWith(verdict), `${name}: ${told.verdict}`);
      await readable(page, name);
      await usable(page, name);
      await shot(page, `dev-${slug(name, more.crash)}-${scheme}`);
    }
    await resolve(context, page);
    await page.getByRole("radio", { name: "Without Semel" }).check();
    for (const [name, , , , verdict] of STORIES.filter((story) => story[4])) {
      const told = await play(page, name);
      check(told.verdict.startsWith(verdict), `${name}, without: ${told.verdict}`);
      await readable(page, `${name}, without`);
      await shot(page, `dev-without-${slug(name)}-${scheme}`);
    }
    check(await page.locator("#with-duplicates").textContent() === "0", "no duplicates with Semel");
    check(Number(await page.locator("#without-duplicates").textContent()) > 0, "duplicates without Semel");
    await usable(page, "at the end");
    await tabbed(page, "at the end");
    await end();
  }
}
