// What happened to one key, line by line.

import { emptyState, h } from "./dom.js";
import { clock, moment, span } from "./format.js";

const word = (state) => (state ?? "").replaceAll("_", " ");

/** Kind of entry → tone, title, what more to say. */
const KINDS = {
  "idempotency.key.created": (d) => ["info", "Claimed", `attempt ${d.attempt}, fence ${d.fence}`],
  "idempotency.lease.renewed": () => ["calm", "Renewed", "the owner is alive"],
  "idempotency.takeover": (d) => ["warn", "Taken over", `attempt ${d.attempt}: the owner before it vanished; fence ${d.fence}`],
  "idempotency.settled": (d) => [{ completed: "good", failed: "warn", released: "calm" }[d.state] ?? "bad", `Settled: ${word(d.state)}`, ""],
  "idempotency.replay": (d) => ["replayed", d.replay_number ? `Replay ${d.replay_number}` : "Replay", d.local ? "from this process’s own copy" : "from the store"],
  "idempotency.conflict": () => ["warn", "Conflict", "the key came with another payload, and was refused"],
  "idempotency.held": () => ["warn", "Held", "a call resembles an earlier one; nothing ran"],
  "idempotency.lock.contention": (d) => ["calm", "Waited", `${span(d.waited_ms)} for another’s run`],
  "idempotency.busy": (d) => ["warn", "Told busy", word(d.why)],
  "idempotency.lease.lost": () => ["bad", "Lease lost", "the owner’s settlement no longer counts"],
  "idempotency.unrecorded": () => ["bad", "Not recorded", "the effect ran, and its outcome could not be written"],
  "idempotency.in_doubt": () => ["bad", "Met in doubt", "a caller was told that the outcome is unknown"],
  "idempotency.recovered": (d) => ["info", "Recover hook asked", d.known ? "it knew what happened" : "it didn’t know"],
  "idempotency.verified": (d) => ["info", "Looked up", { done: "it took effect", not_done: "it did not take effect" }[d.found] ?? "the lookup doesn’t tell"],
  "idempotency.observed": (d) => ["calm", "Observed", `enforcing would have meant: ${word(d.would)}`],
  "idempotency.failed_open": () => ["bad", "Ran unprotected", "the store gave no answer, and the scope says to go on"],
  "idempotency.resolved": (d) => ["good", `Resolved: ${word(d.state)}`, ""],
  "idempotency.unlocked": (d) => ["warn", `Unlocked: ${word(d.state)}`, ""],
  "idempotency.reset": () => ["warn", "Reset", "the key is as new"],
  "job.submitted": (d) => ["info", "Job submitted", d.job_id],
  "store.failed": (d) => ["bad", "Store gave no answer", `to a ${word(d.call)}: ${word(d.kind)}`],
};

function told(entry) {
  const detail = entry.detail ?? {};
  const known = KINDS[entry.type];
  if (known) return known(detail);
  const operator = /^admin\.([a-z]+)(\.begun)?$/.exec(entry.type);
  if (operator) {
    const begun = Boolean(operator[2]);
    const came = begun ? "begun" : word(detail.outcome) + (detail.after ? `: now ${word(detail.after)}` : "");
    return ["operator", `Operator: ${operator[1]}`, `${came}. “${detail.reason ?? ""}”`];
  }
  return ["calm", entry.type, ""];
}

/** Entries, oldest first, as a list; renewals in a row are one line. */
export function timeline(entries) {
  if (entries.length === 0) {
    return h("div", { class: "empty" }, emptyState("Nothing is known of it here.",
      "This server’s audit trail has no entry about this key. With audit.file set, the trail outlives the process."));
  }
  const lines = [];
  for (const entry of entries) {
    const last = lines.at(-1);
    if (entry.type === "idempotency.lease.renewed" && last?.entry.type === entry.type) {
      last.times += 1;
      last.until = entry.time;
    } else {
      lines.push({ entry, times: 1 });
    }
  }
  const first = Date.parse(entries[0].time);
  return h("ol", { class: "timeline" }, lines.map(({ entry, times, until }) => {
    const [tone, title, more] = told(entry);
    const after = Date.parse(entry.time) - first;
    return h("li", { class: tone },
      h("time", { datetime: entry.time, title: entry.time }, lines[0].entry === entry ? moment(entry.time) : clock(entry.time)),
      h("span", { class: "after" }, after > 0 ? `+${span(after)}` : ""),
      h("span", { class: "what" }, h("b", {}, times > 1 ? `${title} ${times} times` : title), more ? h("span", { class: "faint" }, ` ${more}`) : null,
        until ? h("span", { class: "faint" }, `, last at ${clock(until)}`) : null),
      entry.actor ? h("span", { class: "actor" }, entry.actor) : h("span"));
  }));
}
