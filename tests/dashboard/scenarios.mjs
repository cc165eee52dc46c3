// The dashboard in a real browser, in front of a real sidecar. `node scenarios.mjs NAME`; the test outside does the rest.

import { dev } from "./dev.mjs";
import { check, needed, open, shot, tabbed, tell, usable } from "./page.mjs";

const args = JSON.parse(process.env.ARGS ?? "{}");

/** A first look: nothing happened yet. */
async function empty() {
  const { page, context, end, signIn } = await open({ allowed: [/401 .*\/admin\/v1\/live/] });
  const response = await page.goto(needed("URL"));
  const policy = response.headers()["content-security-policy"];
  check(policy.includes("script-src 'self'") && !policy.includes("unsafe"), `the policy: ${policy}`);
  await page.getByRole("heading", { name: "Sign in to Semel" }).waitFor();
  await page.getByLabel("Admin token").fill("not-the-admin-token-at-all");
  await page.keyboard.press("Enter");
  await page.getByText("This token isn’t accepted").waitFor();
  await usable(page, "sign in");
  await signIn();
  await page.getByText("No request with a key yet.").waitFor();
  const kept = await page.evaluate((token) => ({
    session: Object.values(sessionStorage).includes(token),
    elsewhere: JSON.stringify({ ...localStorage }).includes(token) || document.cookie.includes(token) || location.href.includes(token),
  }), needed("TOKEN"));
  check(kept.session && !kept.elsewhere, "the token is kept for the tab, and nowhere else");
  check((await context.cookies()).length === 0, "no cookies");
  await page.getByText("Healthy").waitFor();
  await page.waitForTimeout(3000);
  await usable(page, "overview, empty");
  await shot(page, "dashboard-empty");
  const order = await tabbed(page, "overview");
  check(order[0] === "Skip to the contents" && order.indexOf("Overview") < order.indexOf("Pause"), `the order: ${order}`);
  for (const [link, text] of [["Attention", "Nothing is in doubt."], ["Keys", "No key chosen."], ["Observe mode", "Nothing was observed."]]) {
    await page.getByRole("link", { name: link }).click();
    await page.getByText(text).waitFor();
    check(await page.evaluate(() => document.activeElement.id) === "main", `${link}: the focus goes to what has changed`);
    await usable(page, link);
    await tabbed(page, link);
  }
  // Text that a page made markup of would run; here it stays text.
  await page.goto(`${needed("URL")}/#/keys/<img src=x onerror=alert(1)>`);
  await page.getByText("No key chosen.").waitFor();
  // Another tab knows nothing of the token.
  const other = await context.newPage();
  await other.goto(needed("URL"));
  await other.getByRole("heading", { name: "Sign in to Semel" }).waitFor();
  await end();
}

/** Traffic as it happens, in light and in dark. */
async function load() {
  const { page, end, signIn } = await open({ height: 1180 });
  await signIn();
  const value = (label) => page.locator(".figure", { hasText: label }).locator(".value");
  await page.waitForFunction(() => {
    const text = (label) => [...document.querySelectorAll(".figure")].find((one) => one.textContent.includes(label))?.querySelector(".value").textContent ?? "";
    return parseFloat(text("Requests per second")) > 0 && parseFloat(text("Replay rate")) > 0 && parseFloat(text("Conflicts")) > 0;
  });
  await page.getByRole("heading", { name: "Hot keys" }).waitFor();
  const hot = page.getByRole("row").filter({ hasText: args.hint }).first();
  await hot.waitFor();
  const everything = await page.content();
  check(!everything.includes(args.hotKey), "a whole key is never shown");
  check(await page.locator(".plot canvas").count() === 4, "four plots");
  await page.waitForTimeout(1000 * args.seconds);
  for (const name of ["Requests per second", "Replay rate", "Latency"]) check(/\d/.test(await value(name).textContent()), name);
  const described = await page.locator(".plot").first().getAttribute("aria-label");
  check(/ran [\d.]+/.test(described) && /replayed [\d.]+/.test(described), `the plot in words: ${described}`);
  await page.getByRole("radio", { name: "1 min" }).check();
  await page.waitForTimeout(1500);
  await usable(page, "overview, light");
  await shot(page, "dashboard-load-light");
  await page.getByRole("button", { name: "Dark theme" }).press("Enter");
  await page.waitForTimeout(1500);
  check(await page.evaluate(() => document.documentElement.dataset.theme) === "dark", "dark");
  await usable(page, "overview, dark");
  await page.getByRole("button", { name: "Light theme" }).blur();
  await shot(page, "dashboard-load-dark");
  await page.getByRole("link", { name: "Observe mode" }).click();
  await page.getByRole("row").filter({ hasText: "/orders" }).waitFor();
  await usable(page, "observe mode, dark");
  await shot(page, "dashboard-observe");
  // Paused, nothing moves; and it says so.
  await page.getByRole("button", { name: "Pause" }).click();
  check(await page.locator("#status").textContent() === "Paused", "paused");
  await end();
}

/** Ends a doubt and takes a lease away, by keyboard alone. */
async function doubts() {
  const { page, end, signIn } = await open({ height: 860 });
  await signIn("#/attention");
  const row = (id) => page.getByRole("row").filter({ has: page.locator(`a[href="#/keys/${id}"]`) });
  await row(args.doubt).waitFor();
  await row(args.stuck).waitFor();
  check(await page.locator("#doubt-count").textContent() === String(args.doubts), "the navigation counts them");
  await usable(page, "attention");
  await tabbed(page, "attention");
  await page.evaluate(() => { document.activeElement?.blur(); scrollTo(0, 0); });
  await shot(page, "dashboard-doubts");

  await row(args.doubt).getByRole("button", { name: /^Resolve/ }).press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  await usable(page, "resolve");
  await dialog.getByRole("button", { name: "Resolve" }).click();
  check(await dialog.isVisible(), "nothing is done without who, why and what happened");
  await dialog.getByLabel("It happened.").check();
  await dialog.getByLabel("HTTP status").fill("201");
  await dialog.getByLabel("Body that every caller gets").fill("{\"transfer\": \"tr_7\"}");
  await dialog.getByLabel("Who you are").fill("jo");
  await dialog.getByLabel("Reason").fill("the bank has it: statement 4711");
  await page.waitForTimeout(200);
  await shot(page, "dashboard-resolve");
  await dialog.getByLabel("Reason").press("Enter");
  await dialog.waitFor({ state: "detached" });
  await row(args.doubt).waitFor({ state: "detached" });

  // What is released may happen again, so that needs one more word.
  await row(args.other).getByRole("button", { name: /^Resolve/ }).press("Enter");
  await dialog.getByRole("radio", { name: /^It did not happen/ }).check();
  await dialog.getByLabel("Reason").fill("not in the bank's list");
  await dialog.getByRole("button", { name: "Resolve" }).click();
  check(await dialog.isVisible(), "not without being sure");
  await dialog.getByLabel("I have checked that it did not happen").check();
  await dialog.getByRole("button", { name: "Resolve" }).click();
  await row(args.other).waitFor({ state: "detached" });

  await row(args.stuck).getByRole("button", { name: /^Unlock/ }).press("Enter");
  await dialog.waitFor();
  await usable(page, "unlock");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  check(await row(args.stuck).isVisible(), "escape changes nothing");
  await row(args.stuck).getByRole("button", { name: /^Unlock/ }).press("Enter");
  await dialog.getByLabel("Free", { exact: false }).check();
  await dialog.getByLabel("I know that its owner is gone").check();
  await dialog.getByLabel("Reason").fill("the worker's machine is off");
  await dialog.getByRole("button", { name: "Unlock" }).click();
  await row(args.stuck).waitFor({ state: "detached" });
  await end();
}

/** A key by its name, and all that happened to it. */
async function timeline() {
  const { page, end, signIn } = await open({ height: 1000, allowed: [/404 .*\/admin\/v1\/lookups/] });
  await signIn("#/keys");
  await page.getByLabel("Key, or its hash").fill(args.key);
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByText("Which scope?").waitFor();
  await page.getByLabel("Scope").fill("elsewhere");
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByText("another scope, tenant or environment").waitFor();
  await usable(page, "keys, not found");
  await page.getByLabel("Scope").fill(args.scope);
  await page.getByLabel("Scope").press("Enter");
  const lines = page.locator(".timeline li");
  await page.getByText("Replay 2").first().waitFor();
  const told = await lines.locator("b").allTextContents();
  let at = 0;
  for (const wanted of args.told) {
    const next = told.findIndex((text, place) => place >= at && text.startsWith(wanted));
    check(next >= 0, `no “${wanted}” after ${at} of: ${told.join(" | ")}`);
    at = next + 1;
  }
  check(!(await page.content()).includes(args.key), "the key itself is shown by nobody but its field");
  await usable(page, "keys, timeline");
  await tabbed(page, "keys");
  await page.evaluate(() => { document.activeElement?.blur(); scrollTo(0, 0); });
  await shot(page, "dashboard-timeline");
  await end();
}

/** The store goes away and comes back. */
async function outage() {
  const { page, end, signIn } = await open({ height: 1000, allowed: [/503 .*\/admin\/v1\/records/] });
  await signIn();
  await page.getByText("Healthy").waitFor();
  await page.getByRole("radio", { name: "1 min" }).check();
  await page.waitForTimeout(1000 * args.seconds);
  tell("before");
  await page.getByText("Store away").waitFor();
  await page.getByText("gives no answer, for").waitFor();
  await page.waitForTimeout(1000 * args.seconds);
  await usable(page, "outage");
  await shot(page, "dashboard-outage");
  await page.getByRole("link", { name: "Attention" }).click();
  await page.getByRole("alert").filter({ hasText: "The store gives no answer" }).waitFor();
  await usable(page, "attention in an outage");
  await page.getByRole("link", { name: "Overview", exact: true }).click();
  tell("seen");
  await page.getByText("Healthy").waitFor();
  check(await page.locator("#banner .banner").count() === 0, "the banner goes when the store is back");
  await end();
}

/** The queue of jobs: what is in it, and a dead letter that gets another chance. */
async function jobs() {
  const { page, end, signIn } = await open({ height: 760 });
  await signIn();
  await page.getByRole("link", { name: "Jobs" }).click();
  const row = (id) => page.getByRole("row").filter({ has: page.locator(`[title="${id}"]`) });
  await row(args.dead).waitFor();
  check((await row(args.dead).textContent()).includes(args.error), "why it failed");
  await page.waitForFunction(() => document.getElementById("dead-count").textContent === "1");
  await usable(page, "jobs");
  await tabbed(page, "jobs");
  await page.evaluate(() => { document.activeElement?.blur(); scrollTo(0, 0); });
  await shot(page, "dashboard-jobs");
  await page.getByRole("radio", { name: "Running" }).check();
  await row(args.running).waitFor();
  check((await row(args.running).textContent()).includes("till-7"), "who has it");
  await page.getByRole("radio", { name: "Waiting" }).check();
  await row(args.queued).waitFor();
  await page.getByRole("radio", { name: "Done" }).check();
  await page.getByText("No job is done yet.").waitFor();
  await page.getByRole("radio", { name: "Dead letters" }).check();
  await row(args.dead).getByRole("button", { name: /^Retry/ }).press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  await usable(page, "retry");
  await dialog.getByRole("button", { name: "Retry" }).click();
  check(await dialog.isVisible(), "nothing is done without who and why");
  await dialog.getByLabel("Who you are").fill("jo");
  await dialog.getByLabel("Reason").fill("the bank is back");
  await shot(page, "dashboard-retry");
  await dialog.getByLabel("Reason").press("Enter");
  await dialog.waitFor({ state: "detached" });
  await row(args.dead).waitFor({ state: "detached" });
  await page.getByText("No dead letters.").waitFor();
  await page.getByRole("radio", { name: "Waiting" }).check();
  await row(args.dead).waitFor();
  // Within the time that counts are good for.
  await page.waitForFunction(() => document.getElementById("dead-count").hidden);
  await page.getByRole("button", { name: "Dark theme" }).click();
  await usable(page, "jobs, dark");
  await shot(page, "dashboard-jobs-dark");
  await end();
}

const scenarios = { empty, load, doubts, timeline, outage, jobs, dev };
const name = process.argv[2];
try {
  await scenarios[name]();
  tell("done");
} catch (error) {
  process.stderr.write(`${name}: ${error.stack}\n`);
  process.exit(1);
}
