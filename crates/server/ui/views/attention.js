// What waits for a person: runs of unknown outcome, and leases whose owner may be gone.

import { get } from "../api.js";
import { resolveDialog, unlockDialog } from "../changes.js";
import { code, emptyState, h, keyLink, problemBox, say, stateBadge, table } from "../dom.js";
import { since, span } from "../format.js";

/** A listing may be long; so many pages are looked through before a person is asked whether to go on. */
const PAGES = 10;
const EVERY = 10_000;

const columns = () => [
  { title: "Key", class: "w-key" }, { title: "Scope", class: "w-scope" }, { title: "Tenant" }, { title: "State", class: "w-state" }, { title: "Since" },
  { title: "Attempts", class: "number" }, { title: "Forgotten in", class: "number" }, { title: h("span", { class: "unseen" }, "Action"), class: "actions" },
];

/** All records of a state, within bounds. */
async function list(state) {
  const found = new Map();
  let cursor;
  for (let page = 0; page < PAGES; page += 1) {
    const query = new URLSearchParams({ state, limit: "100", ...(cursor ? { cursor } : {}) });
    const answer = await get(`records?${query}`);
    for (const record of answer.records) found.set(record.id, record);
    cursor = answer.next;
    if (!cursor) break;
  }
  return { records: [...found.values()], more: Boolean(cursor) };
}

/** Of the running ones: those that look as if nobody ran them. */
const isStuck = (record) => record.lapsed || record.lease_left_ms < record.lease_ms / 3
  || Date.now() - Date.parse(record.created_time) > 5 * record.lease_ms;

export async function countDoubts() {
  const answer = await get("records?state=in_doubt&limit=100");
  return { count: answer.records.length, more: Boolean(answer.next) };
}

export function attention({ told }) {
  const doubts = table({ caption: "Records in doubt", columns: columns(), empty: emptyState("Nothing is in doubt.",
    h("span", {}, "A run ends up here when its outcome was lost and its policy is ", code("hold"), ": nobody runs it again until you say what happened.")) });
  const running = table({ caption: "Running records", columns: columns(), empty: emptyState("Nothing runs.",
    "While an effect runs, its record is listed here, with what is left of its lease.") });
  const only = h("input", { type: "checkbox", checked: true, on: { change: () => show() } });
  const looked = h("span", { class: "note", role: "status" }, "Looking …");
  const failed = h("div");
  const more = h("p", { class: "note", hidden: true }, "There is more than is looked through at a time. ", code("semel keys list --in-doubt"), " lists all of it.");
  const again = h("button", { type: "button", on: { click: () => look() } }, "Look again");
  const element = h("div", { class: "view" },
    h("div", { class: "heading" }, h("h1", {}, "Attention"), h("div", { class: "row" }, looked, again)),
    failed,
    h("section", { class: "card queue" }, h("h2", {}, "In doubt"),
      h("p", { class: "note" }, "Find out first what happened: ask the system behind it by its downstream key. Then resolve."), doubts.element),
    h("section", { class: "card queue" }, h("div", { class: "heading" }, h("h2", {}, "Running"),
      h("label", { class: "check" }, only, "only those that look stuck")),
      h("p", { class: "note" }, "A lease that lapses is taken over, or becomes a doubt, by itself. Unlock only where you know that its owner is gone."), running.element),
    more);

  let known = { doubts: [], running: [] };
  const cells = (record, action) => [
    keyLink(record), record.scope, record.tenant || "–",
    h("span", {}, stateBadge(record.state), record.lapsed ? h("span", { class: "faint" }, " lease lapsed") : null,
      record.unreadable ? h("span", { class: "faint" }, " unreadable") : null),
    h("span", { title: record.written_time }, since(record.written_time)),
    `${record.attempt} of ${record.max_attempts}`, span(record.expires_in_ms), action,
  ];
  const button = (record, label, open) => h("button", {
    type: "button", "data-hold": `${label}-${record.id}`, "aria-label": `${label} ${record.key_hint}… of ${record.scope}`,
    on: { click: async () => { if (await open(record)) await look(); } },
  }, `${label} …`);
  const show = () => {
    doubts.rows(known.doubts, (record) => cells(record, button(record, "Resolve", resolveDialog)));
    const listed = only.checked ? known.running.filter(isStuck) : known.running;
    running.rows(listed, (record) => cells(record, button(record, "Unlock", unlockDialog)));
  };

  let timer;
  let ended = false;
  const look = async () => {
    clearTimeout(timer);
    const began = performance.now();
    try {
      const [doubt, run] = [await list("in_doubt"), await list("running")];
      if (ended) return;
      // A lease under `hold` that has lapsed is in doubt, whatever the store still calls it.
      known = { doubts: doubt.records, running: run.records.filter((record) => record.state === "running") };
      known.doubts.sort((a, b) => a.written_time.localeCompare(b.written_time));
      known.running.sort((a, b) => a.created_time.localeCompare(b.created_time));
      more.hidden = !(doubt.more || run.more);
      failed.replaceChildren();
      say(looked, "Looked just now");
      told({ count: known.doubts.length, more: doubt.more });
      show();
    } catch (error) {
      if (ended) return;
      failed.replaceChildren(problemBox(error));
      say(looked, "Shown as last seen");
    }
    // What took long is not asked for again at once: listings cost the store.
    if (!ended) timer = setTimeout(look, EVERY + 10 * (performance.now() - began));
  };
  show();
  look();
  return { element, title: "Attention", end: () => { ended = true; clearTimeout(timer); } };
}
