// Observe mode: what enforcing would have done, before anybody is refused.

import { code, emptyState, h, table } from "../dom.js";
import { count, percent } from "../format.js";
import { live } from "../live.js";

const KINDS = [
  ["replay", "replayed", "Would replay"], ["busy", "waiting", "Would wait"], ["mismatch", "refused", "Conflict"], ["held", "refused", "Held"],
  ["in_doubt", "failed", "In doubt"], ["unavailable", "failed", "Store away"], ["refused", "refused", "No usable key"],
];

/** The shares, as one bar. */
function bar(scope) {
  const all = Math.max(1, scope.requests + scope.refused);
  return h("div", { class: "bar", "aria-hidden": "true" }, KINDS.map(([name, ink]) => {
    const part = h("i", { class: `mark ${ink}` });
    part.style.width = `${(100 * scope[name]) / all}%`;
    return part;
  }));
}

export function observe() {
  const report = table({
    caption: "What enforcing would have done, by scope",
    columns: [{ title: "Scope" }, { title: "Requests", class: "number" }, ...KINDS.map(([, , title]) => ({ title, class: "number" })), { title: "Duplicates", class: "number" }, { title: "Share", class: "share" }],
    empty: emptyState("Nothing was observed.",
      h("span", {}, "In observe mode every request still runs, and what enforcing would have done is counted here. Set it for a route, or for all, and reload:"),
      h("pre", { tabindex: "0" }, "[defaults]\nmode = \"observe\""),
      "When conflicts and missing keys are down to what you expect, set it to “enforce”."),
  });
  const element = h("div", { class: "view" }, h("div", { class: "heading" }, h("h1", {}, "Observe mode")),
    h("section", { class: "card" }, h("h2", {}, "What enforcing would have done"),
      h("p", { class: "note" }, "Since the process started. Each of these requests ran: a duplicate that would have been replayed was an effect done again."), report.element),
    h("section", { class: "card quiet-card" }, h("h2", {}, "How to read it"), h("ul", { class: "plain" },
      h("li", {}, h("b", {}, "Would replay"), " – retries that enforcing answers from the record: what Semel saves you."),
      h("li", {}, h("b", {}, "Would wait"), " – duplicates that came while the first was running."),
      h("li", {}, h("b", {}, "Conflict"), " – one key for different payloads: a client’s bug. Mend it before enforcing, or leave members out of the fingerprint with ", code("fingerprint.exclude"), "."),
      h("li", {}, h("b", {}, "Held"), " – calls of a tool that resemble an earlier one and differ in the arguments that don’t identify it."),
      h("li", {}, h("b", {}, "No usable key"), " – requests that a route with required keys would refuse."))));
  const stop = live.follow(() => {
    if (!live.view) return;
    report.rows(live.view.shadow, (scope) => [
      scope.scope, count(scope.requests + scope.refused), ...KINDS.map(([name]) => h("span", { class: scope[name] ? "" : "faint" }, count(scope[name]))),
      percent(scope.replay + scope.busy, scope.requests + scope.refused), bar(scope),
    ]);
  });
  return { element, title: "Observe mode", end: stop };
}
