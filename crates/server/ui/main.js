// The page: signs in, follows the figures, shows one view at a time.

import { asksFor, signOut, signedIn } from "./api.js";
import { h, say } from "./dom.js";
import { clock, span } from "./format.js";
import { begin, health, live } from "./live.js";
import { askForToken } from "./sign-in.js";
import { attention, countDoubts } from "./views/attention.js";
import { jobs } from "./views/jobs.js";
import { keys } from "./views/keys.js";
import { observe } from "./views/observe.js";
import { overview } from "./views/overview.js";

const $ = (id) => document.getElementById(id);
let view = null;

function badge(id, count, what, more = false) {
  const place = $(id);
  place.hidden = count === 0;
  say(place, count > 0 ? `${count}${more ? "+" : ""}` : "");
  place.setAttribute("aria-label", `${count} ${what}`);
}

const told = ({ count, more }) => badge("doubt-count", count, "in doubt", more);

const go = (hash) => {
  if (location.hash === hash) show();
  else location.hash = hash;
};

function show(isFirst = false) {
  const [name, id] = location.hash.replace(/^#\/?/, "").split("/");
  const views = { attention: () => attention({ told }), keys: () => keys({ id: /^[0-9a-f]{64}$/.test(id) ? id : null, go }), jobs, observe };
  const known = name in views ? name : "overview";
  view?.end();
  view = (views[name] ?? overview)();
  $("main").replaceChildren(view.element);
  document.title = `${view.title} · Semel`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === known) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  // Whoever uses a keyboard or a screen reader goes on from what has changed.
  if (!isFirst) $("main").focus();
}

const BANNERS = {
  outage: (view, since) => ["bad", `The store (${view.store.name}) gives no answer${since}.`,
    "New requests with a key are refused with 503 and nothing runs, so nothing can run twice; scopes that are set to fail open run unprotected. Requests without a key pass as ever.",
    `Check that ${view.store.name} runs and can be reached from this machine; “semel doctor” says what it sees. Semel tries it by itself and goes on when it is back.`],
  recovering: (view, since) => ["warn", `The store (${view.store.name}) answers again; the breaker has not closed yet${since}.`, "It stays open for a while (engine.breaker_first_try, twice as long after each try that fails, at most engine.breaker_open_for), then one request tries the store; until that one is answered, requests with a key are refused with 503.", "Nothing to do: all goes on by itself."],
  lost: (_, since) => ["bad", `No connection to Semel’s admin API${since}.`, "What is shown is what was known last. Traffic may well go on: this is about the dashboard alone.", "Check that the process runs and that this address still leads to it. The page goes on asking."],
};

function banner({ state, since }) {
  const make = BANNERS[state];
  const place = $("banner");
  if (!make) return place.replaceChildren();
  // By the server’s clock, which the samples go by.
  const now = state === "lost" ? Date.now() : Date.parse(live.view.time);
  const ago = since ? `, for ${span(Math.max(0, now - since))}` : "";
  const [tone, title, ...lines] = make(live.view, ago);
  const head = place.querySelector("strong");
  // The time goes on by itself; only another state is news.
  if (place.dataset.state === state && head) return say(head, title);
  place.dataset.state = state;
  place.replaceChildren(h("div", { class: `banner ${tone}` }, h("strong", { "aria-live": "off" }, title), lines.map((line) => h("p", {}, line))));
}

const STATUS = { ok: ["good", "Healthy"], outage: ["bad", "Store away"], recovering: ["warn", "Recovering"], lost: ["bad", "No connection"], unknown: ["", "Connecting"] };

function follow() {
  live.follow(() => {
    const now = health();
    banner(now);
    const [tone, text] = live.paused ? ["", "Paused"] : STATUS[now.state];
    $("status").className = `status ${tone}`;
    say($("status"), text);
    if (live.view) {
      $("jobs-link").hidden = !live.view.has_jobs;
      if (live.view.jobs) badge("dead-count", live.view.jobs.dead, "dead letters");
      say($("foot"), `Semel ${live.view.version} · up ${span(live.view.uptime_ms)} · as of ${clock(live.view.time)} · figures of this process alone`);
    }
  });
}

function tools() {
  const theme = () => say($("theme"), semelTheme.current() === "dark" ? "Light theme" : "Dark theme");
  theme();
  addEventListener("semel:theme", theme);
  $("theme").addEventListener("click", () => semelTheme.toggle());
  $("pause").addEventListener("click", () => {
    live.paused = !live.paused;
    $("pause").setAttribute("aria-pressed", String(live.paused));
    say($("pause"), live.paused ? "Go on" : "Pause");
    for (const listener of live.listeners) listener(live);
  });
  $("sign-out").addEventListener("click", () => { signOut(); location.reload(); });
}

async function start() {
  tools();
  const asked = await asksFor();
  if (asked === "token") {
    if (!signedIn()) await askForToken();
    $("sign-out").hidden = false;
    // A token that was changed meanwhile: ask again.
    addEventListener("semel:refused", () => { signOut(); location.reload(); });
  }
  addEventListener("hashchange", () => show());
  follow();
  show(true);
  begin();
  countDoubts().then(told).catch(() => {});
}

start().catch((error) => {
  $("main").replaceChildren(h("div", { class: "view" }, h("div", { class: "problem", role: "alert" }, h("strong", {}, "The dashboard can’t start"), h("p", {}, String(error.message ?? error)), h("p", {}, "Reload the page. If that doesn’t help, check that the process runs."))));
});
