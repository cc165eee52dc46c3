// The queue of jobs: what waits, what runs, and dead letters that get another chance.

import { get } from "../api.js";
import { retryDialog } from "../changes.js";
import { code, emptyState, h, problemBox, say, stateBadge, table } from "../dom.js";
import { count, since } from "../format.js";
import { live } from "../live.js";

const PAGE = 50;
const EVERY = 5_000;

/** Which list, its name, and what is said where it is empty. */
const LISTS = [
  ["dead", "Dead letters", "No dead letters.", "A job ends up here when it failed for good, or was started as often as it may be. Its key then answers with the failure."],
  ["running", "Running", "No job runs.", "A worker has a job until its lease ends; one that vanishes loses it, and another is given the same job."],
  ["queued", "Waiting", "No job waits.", "Submitted jobs wait here for a worker, the highest priority first."],
  ["done", "Done", "No job is done yet.", "A job that is done is kept as long as its answer."],
];

const columns = () => [
  { title: "Job", class: "w-job" }, { title: "Kind" }, { title: "Key" }, { title: "Tenant" }, { title: "State", class: "w-state" },
  { title: "Attempts", class: "number" }, { title: "Submitted" }, { title: "Worker or error" }, { title: h("span", { class: "unseen" }, "Action"), class: "actions" },
];

export function jobs() {
  let chosen = LISTS[0][0];
  let after = null;
  const figures = Object.fromEntries(["queued", "running", "dead"].map((name) => [name, h("dd", { class: "value" }, "–")]));
  const figure = (name, label) => h("div", { class: "figure" }, h("dt", {}, label), figures[name]);
  const picker = h("fieldset", { class: "ranges" }, h("legend", { class: "unseen" }, "Which jobs"),
    LISTS.map(([state, label]) => h("label", {}, h("input", { type: "radio", name: "job-state", value: state, checked: state === chosen,
      on: { change: () => { chosen = state; after = null; look(); } } }), h("span", {}, label))));
  const place = h("div");
  const failed = h("div");
  const damaged = h("div");
  const looked = h("span", { class: "note", role: "status" }, "Looking …");
  const next = h("button", { type: "button", hidden: true, on: { click: () => { after = next.dataset.after; look(); } } }, "Older ones");
  const element = h("div", { class: "view" },
    h("div", { class: "heading" }, h("h1", {}, "Jobs"), h("div", { class: "row" }, looked, picker)),
    failed, damaged,
    h("dl", { class: "figures three", "aria-label": "Jobs" }, figure("queued", "Waiting"), figure("running", "Running"), figure("dead", "Dead letters")),
    h("section", { class: "card queue" }, place, next),
    h("p", { class: "note" }, "The same in a terminal: ", code("semel jobs list"), ", ", code("semel jobs dead"), ", ", code("semel jobs retry"), "."));

  const cells = (job) => [
    h("span", { class: "hash", title: job.job_id }, `…${job.job_id.slice(-12)}`), job.kind, job.key_hint ? `${job.key_hint}…` : "–", job.tenant || "–",
    stateBadge(job.state), `${job.attempt} of ${job.max_attempts}`, h("span", { title: job.created_at }, since(job.created_at)),
    h("span", { class: "faint" }, job.error ?? job.worker ?? "–"),
    job.state === "dead" ? h("button", {
      type: "button", "data-hold": `retry-${job.job_id}`, "aria-label": `Retry job ${job.job_id.slice(-12)}`,
      on: { click: async () => { if (await retryDialog(job)) await look(); } },
    }, "Retry …") : null,
  ];

  const lists = new Map(LISTS.map(([state, label, title, more]) => [state, table({ caption: label, columns: columns(), empty: emptyState(title, more) })]));
  const show = (page) => {
    const list = lists.get(chosen);
    if (place.firstChild !== list.element) place.replaceChildren(list.element);
    list.rows(page.jobs, cells);
    next.hidden = !page.next;
    next.dataset.after = page.next ?? "";
    for (const [name, cell] of Object.entries(figures)) say(cell, count(page[name]));
    // Only where it is another: whoever hears or copies it is not disturbed.
    const known = `${page.damaged} ${page.damaged_file ?? ""}`;
    if (damaged.dataset.known === known) return;
    damaged.dataset.known = known;
    damaged.replaceChildren(...(page.damaged ? [problemBox({
      title: `${count(page.damaged)} ${page.damaged === 1 ? "file" : "files"} in the bucket can’t be read as a job`,
      message: `No worker gets such a job, and who asks for it is told so. One of them is ${page.damaged_file}`,
      next: "Mend the file, or move it away.",
    })] : []));
  };

  let timer;
  let ended = false;
  const look = async () => {
    clearTimeout(timer);
    const began = performance.now();
    const asked = chosen;
    try {
      const query = new URLSearchParams({ state: asked, limit: String(PAGE), ...(after ? { after } : {}) });
      const page = await get(`jobs?${query}`);
      if (ended || asked !== chosen) return;
      failed.replaceChildren();
      say(looked, "Looked just now");
      show(page);
    } catch (error) {
      if (ended) return;
      failed.replaceChildren(problemBox(error));
      say(looked, "Shown as last seen");
    }
    // What took long is not asked for again at once: counting costs the store.
    const again = () => (live.paused ? (timer = setTimeout(again, EVERY)) : look());
    if (!ended) timer = setTimeout(again, EVERY + 10 * (performance.now() - began));
  };
  look();
  return { element, title: "Jobs", end: () => { ended = true; clearTimeout(timer); } };
}
