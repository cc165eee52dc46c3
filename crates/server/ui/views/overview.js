// How it goes: traffic, replays, latency, the store, hot keys.

import { chart, highest, perSecond, quantile } from "../charts.js";
import { code, emptyState, h, keyLink, say, table } from "../dom.js";
import { count, percent, rate, span } from "../format.js";
import { KEYED, PROBLEMS, health, live, sums } from "../live.js";
import { limits } from "./limits.js";

const RANGES = [[60, "1 min"], [300, "5 min"], [600, "10 min"]];

/** A figure of the first row: a number, what it is, and what it is made of. */
function figure(label) {
  const value = h("dd", { class: "value" }, "–");
  const more = h("dd", { class: "more" }, "\u00a0");
  const element = h("div", { class: "figure" }, h("dt", {}, label), value, more);
  return { element, set: (text, below, tone = "") => { say(value, text); say(more, below || "\u00a0"); element.className = `figure ${tone}`; } };
}

function part(label) {
  const dot = h("i", { class: "dot", "aria-hidden": "true" });
  const value = h("b", {}, "–");
  const more = h("span", { class: "more" });
  const element = h("li", { class: "part" }, dot, h("span", { class: "part-name" }, label), value, more);
  return { element, set: (tone, text, below) => { dot.className = `dot ${tone}`; say(value, text); say(more, below); } };
}

function figures() {
  const all = {
    requests: figure("Requests per second"), replays: figure("Replay rate"), conflicts: figure("Conflicts"),
    flight: figure("In flight"), waiting: figure("Waiting"), latency: figure("Latency, p99"),
  };
  const element = h("dl", { class: "figures", "aria-label": "Last minute" }, Object.values(all).map((one) => one.element));
  const update = () => {
    const minute = sums(60);
    const [requests, replayed, conflicts] = [minute.of(...KEYED), minute.of("replayed"), minute.of("conflicts", "held")];
    const last = sums(5);
    all.requests.set(rate(last.perSecond(...KEYED)), `${count(minute.of("passed"))} without a key, last minute`);
    all.replays.set(percent(replayed, requests), `${count(replayed)} of ${count(requests)}, last minute`);
    all.conflicts.set(count(conflicts), minute.of("held") > 0 ? `${count(minute.of("held"))} of them held, last minute` : "key with another payload, last minute", conflicts > 0 ? "warn" : "");
    const { engine, latency } = live.view;
    all.flight.set(count(engine.running), "effects running now");
    all.waiting.set(count(engine.waiting), "callers waiting for another’s run");
    all.latency.set(span(latency.ran_ms?.p99), `fresh; replay ${span(latency.replayed_ms?.p99)}`);
  };
  return { element, update };
}

function parts() {
  const all = { store: part("Store"), breaker: part("Breaker"), calls: part("Store calls"), audit: part("Audit trail") };
  const element = h("ul", { class: "parts card", "aria-label": "Parts and how they are" }, Object.values(all).map((one) => one.element));
  const update = () => {
    const { store, engine, latency, audit } = live.view;
    const minute = sums(60);
    const away = !store.reachable || health().state === "outage";
    const size = store.records === undefined ? "" : `${count(store.records)} records`;
    all.store.set(away ? "bad" : "good", store.name, away ? "gives no answer" : size);
    const breaker = { closed: ["good", "closed", "everything is let through"], open: ["bad", "open", "the store is left alone for a while"], half_open: ["warn", "half-open", "one request tries the store"] };
    all.breaker.set(...breaker[engine.breaker]);
    const errors = minute.of("store_errors");
    if (minute.of("store_calls") === 0) all.calls.set("good", "none", "in the last minute");
    else all.calls.set(errors > 0 ? "warn" : "good", `p99 ${span(latency.store_ms?.p99)}`, errors > 0 ? `${count(errors)} without an answer, last minute` : `${rate(minute.perSecond("store_calls"))}/s, all answered`);
    const kept = { file: "written to a file", none: "in memory only" }[audit.sink] ?? `kept in ${audit.sink}`;
    const failing = (audit.copies ?? []).filter((copy) => copy.failing).map((copy) => copy.sink);
    if (audit.lost > 0) all.audit.set("bad", kept, `${count(audit.lost)} entries lost since the start`);
    else if (failing.length > 0) all.audit.set("warn", kept, `the copy in ${failing.join(" and ")} is behind`);
    else all.audit.set("good", kept, audit.waiting > 0 ? `${count(audit.waiting)} waiting` : "nothing lost");
  };
  return { element, update };
}

function plots() {
  const shown = (value) => `${rate(value)}/s`;
  const axis = (value) => (value >= 1000 ? count(value) : String(Number(value.toFixed(1))));
  const ms = { shown: span, axis: (value) => (value >= 1000 ? `${value / 1000} s` : `${value} ms`) };
  return [
    chart({ title: "Traffic", note: "requests with a key, per second", series: [
      { label: "ran", ink: "ran", stacked: true, value: perSecond("ran", "handed_out", "unprotected"), shown, axis },
      { label: "replayed", ink: "replayed", stacked: true, value: perSecond("replayed"), shown },
      { label: "refused", ink: "refused", stacked: true, value: perSecond(...PROBLEMS), shown },
    ] }),
    chart({ title: "Latency", note: "with and without replay, effect included", log: true, series: [
      { label: "ran p99", ink: "ran", value: quantile("ran_ms", "p99"), ...ms },
      { label: "p50", ink: "ran", dash: true, value: quantile("ran_ms", "p50"), ...ms },
      { label: "replayed p99", ink: "replayed", value: quantile("replayed_ms", "p99"), ...ms },
      { label: "p50", ink: "replayed", dash: true, value: quantile("replayed_ms", "p50"), ...ms },
    ] }),
    chart({ title: "In flight", note: "effects running, and callers waiting for them", floor: 4, whole: true, series: [
      { label: "running", ink: "ran", fill: true, value: highest("running"), shown: count, axis: count },
      { label: "waiting", ink: "waiting", value: highest("waiting"), shown: count },
    ] }),
    chart({ title: "Refused", note: "requests that got neither a run nor a replay, per second", series: [
      { label: "conflict", ink: "refused", value: perSecond("conflicts"), shown, axis },
      { label: "held", ink: "refused", dash: true, value: perSecond("held"), shown },
      { label: "another runs", ink: "waiting", value: perSecond("in_flight"), shown },
      { label: "in doubt", ink: "failed", value: perSecond("in_doubt"), shown },
      { label: "store away", ink: "failed", dash: true, value: perSecond("unavailable"), shown },
    ] }),
  ];
}

function hotKeys() {
  const keys = table({
    caption: "Hot keys of the last one to two minutes",
    columns: [{ title: "Key" }, { title: "Scope" }, { title: "Tenant" }, { title: "Requests", class: "number" }, { title: "Replayed", class: "number" }],
    empty: emptyState("No key came more than twice lately.", "A key that comes again and again shows up here, with the beginning of its hash: a client that retries in a tight loop, or one key for many requests."),
  });
  const element = h("section", { class: "card" }, h("h2", {}, "Hot keys"), h("p", { class: "note" }, "last one to two minutes, by hash"), keys.element);
  const update = () => keys.rows(live.view.hot_keys.slice(0, 8), (key) => [
    keyLink(key), key.scope, key.tenant || "–",
    h("span", {}, count(key.requests), key.uncertain > 0 ? h("span", { class: "faint" }, ` – ${count(key.requests + key.uncertain)}`) : null),
    percent(key.replayed, key.requests),
  ]);
  return { element, update };
}

function firstSteps() {
  return h("section", { class: "card empty first" }, emptyState("No request with a key yet.",
    h("span", {}, "Send one through the main listener with an ", code("Idempotency-Key"), " header, and it shows up here within a second:"),
    h("pre", { tabindex: "0" }, "curl http://127.0.0.1:8080/charges -H 'Idempotency-Key: order-1' \\\n     -H 'Content-Type: application/json' -d '{\"amount\": 500}'"),
    h("span", {}, "Send it twice: the second time it is answered from the record. Requests without a key pass untouched. ", code("semel demo"), " shows all of it in a minute.")));
}

export function overview() {
  let seconds = Number(sessionStorage.getItem("semel.range")) || 300;
  const [top, middle, hot, bounds, drawn] = [figures(), parts(), hotKeys(), limits(), plots()];
  const first = firstSteps();
  const choose = (chosen) => { seconds = chosen; sessionStorage.setItem("semel.range", String(chosen)); update(); };
  const ranges = h("fieldset", { class: "ranges" }, h("legend", { class: "unseen" }, "Time shown"), RANGES.map(([value, label]) =>
    h("label", {}, h("input", { type: "radio", name: "range", value: String(value), checked: value === seconds, on: { change: () => choose(value) } }), h("span", {}, label))));
  const grid = h("div", { class: "charts" }, drawn.map((one) => one.element));
  const element = h("div", { class: "view" },
    h("div", { class: "heading" }, h("h1", {}, "Overview"), ranges), top.element, middle.element, first, grid, hot.element, bounds.element);
  const update = () => {
    if (!live.view) return;
    top.update();
    middle.update();
    const anything = live.samples.some((sample) => KEYED.some((name) => sample[name] > 0));
    first.hidden = anything;
    hot.element.hidden = !anything;
    hot.update();
    bounds.update();
    for (const one of drawn) one.draw(live.samples, seconds);
  };
  const stop = live.follow(update);
  return { element, title: "Overview", end: () => { stop(); for (const one of drawn) one.end(); } };
}
