// The usage of the process's limits, and the number of refusals.

import { h, table } from "../dom.js";
import { count, percent } from "../format.js";
import { live } from "../live.js";

const WORDS = {
  connections: "connections", requests: "requests under way", running: "requests with a key at the service",
  waiting: "callers that wait for another’s run", buffered: "bytes of bodies in memory",
  rate: "requests a second, of one caller", keys: "quota of new keys, of one caller",
};

export function limits() {
  const rows = table({
    caption: "What is taken of each limit",
    columns: [{ title: "Limit" }, { title: "Taken", class: "number" }, { title: "At most", class: "number" }, { title: "Used", class: "number" }, { title: "Turned away", class: "number" }],
    empty: "",
  });
  const element = h("section", { class: "card" }, h("h2", {}, "Limits"), h("p", { class: "note" }, "of this process, now; turned away since its start"), rows.element);
  const update = () => {
    element.hidden = live.view.limits.length === 0;
    rows.rows(live.view.limits, (limit) => [
      WORDS[limit.name] ?? limit.name, ...(limit.most > 0 ? [count(limit.used), count(limit.most), percent(limit.used, limit.most)] : ["–", "–", "–"]), count(limit.refused),
    ]);
  };
  return { element, update };
}
