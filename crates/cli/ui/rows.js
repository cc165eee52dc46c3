// From events to rows of the diagram: like events at about the same time are one row, bars join rows.

/** Events of one kind that come within this many milliseconds are one row. */
const TOGETHER = 400;

const signature = ({ kind, from, to, label, lost }) => [kind, from, to, label, lost].join("|");

/** The lanes that a run needs, from left to right. */
export function lanesOf(run) {
  if (!run.with_semel) return ["client", "service"];
  return run.scenario === "kill" ? ["client", "a", "b", "service"] : ["client", "a", "service"];
}

/** Last, but effects that end at the moment of the first reply come before it. */
function placeOf(rows, event) {
  const last = rows.at(-1);
  return event.kind === "end" && last?.kind === "reply" && event.at - last.at < 100 ? rows.length - 1 : rows.length;
}

/** Rows in order of time. A row has an event and how many there are like it. */
export function rowsOf(run) {
  const rows = [];
  const bars = new Map();
  for (const event of run.events) {
    const like = rows.findLast((row) => signature(row) === signature(event) && event.at - row.at < TOGETHER);
    // Without Semel the client’s own arrow leads to the service: the effect begins on that row.
    const isSilent = event.kind === "begin" && event.from === event.to;
    let row = like;
    if (like) like.count += 1;
    else if (isSilent) row = rows.at(-1);
    else rows.splice(placeOf(rows, event), 0, (row = { ...event, count: 1 }));
    if (event.kind === "begin") bars.set(event.effect, { effect: event.effect, from: row, to: null });
    else if (event.kind === "end" && bars.has(event.effect)) bars.get(event.effect).to = row;
  }
  return { rows, bars: [...bars.values()] };
}

/** From each claim to what ends the lease: the response is stored, or the owner is killed and time passes. */
export function leasesOf(rows) {
  return rows.filter((row) => row.kind === "claim").map((claim) => {
    const after = rows.slice(rows.indexOf(claim) + 1);
    const stored = after.find((row) => row.kind === "store" && row.from === claim.from);
    const killed = after.find((row) => row.kind === "kill" && row.from === claim.from);
    const lapsed = killed && after.find((row) => row.kind === "lapse");
    return { lane: claim.from, from: claim, to: killed ?? stored ?? null, lapsed: lapsed ?? null, isKilled: Boolean(killed) };
  });
}

/** One step in words, for those who don’t see the diagram. */
export function stepOf(row, nameOf) {
  const count = row.count > 1 ? `${row.count} × ` : "";
  const way = row.from === row.to ? nameOf(row.from) : `${nameOf(row.from)} to ${nameOf(row.to)}`;
  return `${(row.at / 1000).toFixed(2)} s, ${way}: ${count}${row.label}${row.lost ? " (lost)" : ""}`;
}
