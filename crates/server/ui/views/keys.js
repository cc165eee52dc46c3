// One key: find it, see where it stands and what happened to it.

import { get, post } from "../api.js";
import { resolveDialog, unlockDialog } from "../changes.js";
import { code, emptyState, h, problemBox, say, stateBadge } from "../dom.js";
import { count, moment, span } from "../format.js";
import { live } from "../live.js";
import { timeline } from "../timeline.js";

const EVERY = 3000;

function field(label, name, props = {}, hint) {
  const input = h("input", { name, id: `find-${name}`, autocomplete: "off", spellcheck: "false", ...props });
  return h("div", { class: `field ${props.class ?? ""}` }, h("label", { for: `find-${name}` }, label), input, hint ? h("small", {}, hint) : null);
}

function finder(found) {
  const failed = h("div");
  const scopes = h("datalist", { id: "scopes" });
  const stop = live.follow(() => {
    const names = [...new Set(live.view?.hot_keys.map((key) => key.scope) ?? [])];
    if (scopes.children.length !== names.length) scopes.replaceChildren(...names.map((name) => h("option", { value: name })));
  });
  const submit = async (event) => {
    event.preventDefault();
    const said = Object.fromEntries([...new FormData(event.target)].filter(([, value]) => value !== ""));
    failed.replaceChildren();
    try {
      if (!said.scope && /^[0-9a-f]{64}$/.test(said.key)) return found(said.key);
      if (!said.scope) throw Object.assign(new Error("A key is of one scope; the same key in another scope is another key."), { title: "Which scope?", next: "Give the scope, or the key’s whole hash." });
      const record = await post("lookups", said);
      found(record.id);
    } catch (error) {
      failed.replaceChildren(problemBox(error));
    }
  };
  const element = h("section", { class: "card" }, h("h2", {}, "Find a key"),
    h("form", { class: "finder", on: { submit } },
      field("Key, or its hash", "key", { required: true, maxlength: "255", class: "wide" }),
      field("Scope", "scope", { maxlength: "128", list: "scopes", placeholder: "/charges" }, "a route’s path, if it has no other"),
      field("Tenant", "tenant", { maxlength: "128" }, "if any"),
      field("Principal", "principal", { maxlength: "1024" }, "if any"),
      scopes, h("button", { class: "primary" }, "Look up")),
    h("p", { class: "note" }, "The key goes to the server in the request’s body, and is kept nowhere."), failed);
  return { element, end: stop };
}

/** Why answer and checkpoint are not shown. The record can still be resolved, unlocked and reset. */
function unreadableWords({ reason, key }) {
  return {
    missing_key: `encrypted with key ${key}, which this server does not have`,
    not_authentic: "changed or moved since it was encrypted",
    not_encrypted: "not encrypted, and therefore not accepted",
  }[reason] ?? reason;
}

/** What the record says. */
function facts(record) {
  const crash = { takeover: "taken over by the next caller", hold: "in doubt until resolved" }[record.crash];
  const rows = [
    ["Scope", record.scope], ["Tenant", record.tenant || "–"], ["Environment", record.environment || "–"],
    ["Attempt", `${record.attempt} of ${record.max_attempts}`], ["Fence", code(String(record.fence))],
    ["First claimed", moment(record.created_time)], ["Last written", moment(record.written_time)],
    ["Forgotten in", span(record.expires_in_ms)], ["If its owner vanishes", crash],
  ];
  if (record.state === "running") rows.push(["Lease left", `${span(record.lease_left_ms)} of ${span(record.lease_ms)}`]);
  const unreadable = record.unreadable;
  if (unreadable) rows.push(["Content", unreadableWords(unreadable)]);
  const answer = record.answer_summary;
  if (answer) rows.push(["Answer kept", `${answer.status ? `HTTP ${answer.status}, ` : ""}${count(answer.bytes)} bytes${answer.kept ? "" : ", body not kept"}`]);
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function one(id) {
  const head = h("div", { class: "heading" });
  const about = h("div");
  const said = h("p", { class: "note", role: "status" });
  const line = h("div");
  const element = h("section", { class: "card", "aria-label": "The key" }, head, about, h("h3", {}, "Timeline"), said, line);
  let timer;
  let ended = false;
  let shape = "";
  const look = async () => {
    clearTimeout(timer);
    const [record, history] = await Promise.all([
      get(`records/${id}`).catch((error) => error), get(`records/${id}/history?limit=500`).catch((error) => error),
    ]);
    if (ended) return;
    show(record, history);
    timer = setTimeout(look, EVERY);
  };
  const show = (record, history) => {
    const isThere = !(record instanceof Error);
    const action = isThere && { in_doubt: ["Resolve …", resolveDialog], running: ["Unlock …", unlockDialog] }[record.state];
    // Rebuilt only where something else is to be shown: the focus stays where it is.
    const now = JSON.stringify([isThere ? [record.state, record.fence] : [record.status], history.entries?.length]);
    if (now !== shape) {
      shape = now;
      head.replaceChildren(
        h("h2", { class: "key" }, h("span", {}, isThere && record.key_hint ? `${record.key_hint}…` : "Key"), " ", h("span", { class: "hash" }, id.slice(0, 16))),
        h("div", { class: "row" }, isThere ? stateBadge(record.state) : null, action
          ? h("button", { type: "button", class: "primary", on: { click: async () => { if (await action[1](record)) await look(); } } }, action[0]) : null));
      line.replaceChildren(history instanceof Error ? problemBox(history) : timeline(history.entries));
      say(said, history.complete === false
        ? "As far as this server knows: other servers keep trails of their own, and older entries may be left out."
        : "All that this server’s audit trail has about it. Other servers keep trails of their own.");
    }
    if (isThere) about.replaceChildren(facts(record));
    else if (record.status === 404) about.replaceChildren(h("div", { class: "empty" }, emptyState("There is no record.", "It has expired, was reset, or never was. The next request with this key runs.")));
    else about.replaceChildren(problemBox(record));
  };
  look();
  return { element, end: () => { ended = true; clearTimeout(timer); } };
}

export function keys({ id, go }) {
  const find = finder((found) => go(`#/keys/${found}`));
  const shown = id ? one(id) : null;
  const hint = h("div", { class: "card empty" }, emptyState("No key chosen.",
    "Look one up as its caller sent it, or choose one under “Hot keys” or “Attention”. You see where it stands, who ran it, and every replay."));
  const element = h("div", { class: "view" }, h("div", { class: "heading" }, h("h1", {}, "Keys")), find.element, shown?.element ?? hint);
  return { element, title: "Keys", end: () => { find.end(); shown?.end(); } };
}
