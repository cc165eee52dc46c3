// What every scenario needs: a browser, a page that tells of its errors, checks of what can be used without a mouse.

import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import path from "node:path";

// Installed elsewhere: see `cargo xtask services up dashboard`.
const require = createRequire(path.join(needed("SEMEL_TEST_PLAYWRIGHT"), "here.cjs"));
const { chromium } = require("playwright-core");

export function needed(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

export function check(isTrue, what) {
  if (!isTrue) throw new Error(what);
}

/** Tells the test outside that a point is reached. */
export const tell = (word) => process.stdout.write(`${word}\n`);

export async function open({ scheme = "light", height = 900, allowed = [] } = {}) {
  const browser = await chromium.launch({
    executablePath: needed("SEMEL_TEST_CHROMIUM"),
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"],
  });
  const context = await browser.newContext({ viewport: { width: 1280, height }, colorScheme: scheme, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  const errors = [];
  page.on("console", (message) => {
    const text = `${message.text()} ${message.location().url}`;
    if (["error", "warning"].includes(message.type()) && !allowed.some((known) => known.test(text))) errors.push(text);
  });
  page.on("pageerror", (error) => errors.push(String(error)));
  const away = [];
  page.on("request", (request) => { if (new URL(request.url()).origin !== new URL(needed("URL")).origin) away.push(request.url()); });
  const end = async () => {
    await browser.close();
    check(errors.length === 0, `the page said:\n${errors.join("\n")}`);
    check(away.length === 0, `the page asked elsewhere:\n${away.join("\n")}`);
  };
  const signIn = async (hash = "") => {
    const response = await page.goto(`${needed("URL")}/${hash}`);
    await page.getByLabel("Admin token").fill(needed("TOKEN"));
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.locator("main h1").waitFor();
    return response;
  };
  return { browser, context, page, end, signIn };
}

export async function shot(page, name) {
  const folder = needed("SHOTS");
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: path.join(folder, `${name}.png`) });
}

/** What can be told without a person: names, labels, one heading, no double ids, text that can be read. */
export async function usable(page, where) {
  const problems = await page.evaluate(() => {
    const found = [];
    const seen = (element) => element.checkVisibility({ checkVisibilityCSS: true });
    const nameOf = (element) => element.getAttribute("aria-label")
      || (element.getAttribute("aria-labelledby") && document.getElementById(element.getAttribute("aria-labelledby"))?.textContent)
      || (element.labels?.[0]?.textContent ?? "") || (element.matches("input, textarea") ? "" : element.textContent);
    for (const element of document.querySelectorAll("button, a[href], input, textarea, select, dialog, [role=img], [role=region]")) {
      if (seen(element) && !nameOf(element)?.trim()) found.push(`no name: ${element.outerHTML.slice(0, 120)}`);
    }
    const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
    for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) found.push(`id twice: ${id}`);
    if (document.querySelectorAll("h1").length !== 1) found.push("not one h1");
    if (!document.documentElement.lang) found.push("no language");
    for (const element of document.querySelectorAll("[tabindex]")) if (element.tabIndex > 0) found.push(`own order: ${element.outerHTML.slice(0, 80)}`);

    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const over = ([r, g, b, a], under) => [r, g, b].map((value, at) => (value * a + under[at] * (255 - a)) / 255);
    const behind = (element) => {
      const layers = [];
      for (let at = element; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
      return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]);
    };
    const light = (rgb) => {
      const [r, g, b] = rgb.map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const top = document.querySelector("dialog[open]") ?? document.body;
    for (const element of top.querySelectorAll("*")) {
      const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
      if (!own || !seen(element) || element.closest(".unseen, .skip, [disabled]")) continue;
      const style = getComputedStyle(element);
      const under = behind(element);
      const [a, b] = [light(over(rgba(style.color), under)), light(under)];
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      const isLarge = parseFloat(style.fontSize) >= 24;
      if (ratio < (isLarge ? 3 : 4.5)) found.push(`contrast ${ratio.toFixed(2)}: ${element.outerHTML.slice(0, 100)}`);
    }
    return found;
  });
  check(problems.length === 0, `${where}:\n${problems.join("\n")}`);
}

/** Goes through everything by Tab: in the order of the page, each with a visible mark of focus. */
export async function tabbed(page, where) {
  await page.evaluate(() => { document.activeElement?.blur(); scrollTo(0, 0); });
  const names = [];
  let last = -1;
  for (let pressed = 0; pressed < 200; pressed += 1) {
    await page.keyboard.press("Tab");
    const now = await page.evaluate(() => {
      const element = document.activeElement;
      if (!element || element === document.body) return null;
      const marked = element.matches("input[type=radio]") ? element.nextElementSibling ?? element : element;
      const style = getComputedStyle(marked);
      return {
        name: element.getAttribute("aria-label") || element.textContent.trim() || element.name,
        place: [...document.querySelectorAll("*")].indexOf(element),
        visible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1,
      };
    });
    if (!now) break;
    check(now.visible, `${where}: focus on “${now.name}” can't be seen`);
    check(now.place > last, `${where}: “${now.name}” comes out of order`);
    last = now.place;
    names.push(now.name);
  }
  return names;
}
