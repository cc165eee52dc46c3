// The page: starts scenarios, follows their events, shows one run at a time.

import { draw } from "./diagram.js";
import { h, say } from "./dom.js";

const $ = (id) => document.getElementById(id);

const TITLES = {
  send: "Send a request",
  lost_reply: "Lose the reply, then retry",
  other_payload: "Another payload under the same key",
  ten: "Ten at once",
  kill: "Kill the owner",
};

let state = null;
/** The run that somebody chose; the newest where it is `null`. */
let chosen = null;

const withSemel = () => document.querySelector("input[name=with]:checked").value === "yes";
const crash = () => document.querySelector("input[name=crash]:checked").value;
const shownRun = () => state?.runs.find((run) => run.number === chosen) ?? state?.runs.at(-1) ?? null;

async function ask(path, body) {
  const response = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body ?? {}) });
  if (response.ok) chosen = (await response.json()).run;
  return response.ok;
}

function totals() {
  for (const side of ["with", "without"]) {
    for (const [name, value] of Object.entries(state[side])) say($(`${side}-${name}`), String(value));
    const { charges, duplicates } = state[side];
    $(`${side}-duplicates`).className = duplicates > 0 ? "bad" : charges > 0 ? "good" : "";
  }
}

function verdict(run) {
  const place = $("verdict");
  const text = run?.verdict?.text ?? (run ? "Running" : "");
  const key = JSON.stringify([run?.number, run?.is_done, run?.verdict]);
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  if (!run) return place.replaceChildren();
  const isOpen = run.is_done && run.verdict?.record;
  place.replaceChildren(h("div", { class: `verdict ${run.is_done ? run.verdict?.tone ?? "" : ""}` },
    h("p", {}, run.is_done ? text : "Running"),
    isOpen ? h("a", { href: run.verdict.record, target: "_blank", rel: "noopener" }, "Resolve the record") : null,
    isOpen ? h("button", { type: "button", on: { click: () => ask(`api/runs/${run.number}/retry`) } }, "Retry") : null));
}

function head(run) {
  const badge = $("badge");
  badge.hidden = !run;
  if (!run) return;
  say($("title"), TITLES[run.scenario]);
  $("about").replaceChildren("Idempotency-Key: ", h("code", {}, run.key));
  say(badge, run.with_semel ? "With Semel" : "Without Semel");
  badge.className = `badge ${run.with_semel ? "info" : "warn"}`;
}

const nameOf = (run) => `${TITLES[run.scenario]}${run.with_semel ? "" : ", without"}`;

function earlier(run) {
  const key = JSON.stringify([run?.number, state.runs.map((one) => [one.number, one.verdict?.tone])]);
  const list = $("runs");
  $("earlier").hidden = state.runs.length < 2;
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...state.runs.toReversed().map((one) => h("li", {}, h("button", {
    type: "button",
    "aria-pressed": String(one === run),
    on: { click: () => { chosen = one.number; show(); } },
  }, h("span", { class: `dot ${one.verdict?.tone ?? ""}` }), nameOf(one)))));
}

function controls(run) {
  for (const button of $("scenes").children) {
    button.disabled = state.is_busy;
    if (run?.scenario === button.dataset.scenario) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
  $("crash").disabled = !withSemel();
  say($("kill-text"), withSemel() ? "The sidecar that runs the request gets a SIGKILL." : "The connection breaks while the charge is made.");
}

function status() {
  const running = state.sidecars.filter((sidecar) => sidecar.is_running).length;
  $("status").className = `status ${running === 2 ? "good" : "warn"}`;
  say($("status"), running === 2 ? "Both sidecars run" : `${running} of 2 sidecars run`);
  for (const { name, dashboard } of state.sidecars) {
    const link = $(`dashboard-${name}`);
    if (link.getAttribute("href") !== `${dashboard}/`) link.setAttribute("href", `${dashboard}/`);
  }
}

function show() {
  if (!state) return draw($("picture"), $("steps"), null);
  const run = shownRun();
  status();
  totals();
  head(run);
  verdict(run);
  controls(run);
  earlier(run);
  draw($("picture"), $("steps"), run);
}

/** Asks for news; each answer waits until there are some. */
async function follow() {
  for (;;) {
    try {
      const response = await fetch(state ? `api/state?after=${state.version}` : "api/state");
      if (!response.ok) throw new Error(response.statusText);
      state = await response.json();
      show();
    } catch {
      $("status").className = "status bad";
      say($("status"), "semel dev has ended");
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
}

function start() {
  const theme = () => say($("theme"), semelTheme.current() === "dark" ? "Light theme" : "Dark theme");
  theme();
  addEventListener("semel:theme", theme);
  $("theme").addEventListener("click", () => semelTheme.toggle());
  addEventListener("resize", show);
  for (const input of document.querySelectorAll("input")) input.addEventListener("change", show);
  $("scenes").addEventListener("click", (event) => {
    const scenario = event.target.closest("[data-scenario]")?.dataset.scenario;
    if (scenario) ask("api/runs", { scenario, with_semel: withSemel(), crash: crash() });
  });
  show();
  follow();
}

start();
