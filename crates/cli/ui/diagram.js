// A run as a sequence diagram in SVG: lanes, arrows, bars while effects run.

import { EXAMPLE } from "./example.js";
import { lanesOf, leasesOf, rowsOf, stepOf } from "./rows.js";

/** The height of a row; stories with two sidecars are long, and have lower ones. */
const ROW = 37;
const LOW_ROW = 29.5;
/** The most that a pause between two rows adds. */
const MAX_PAUSE = 26;
const HEAD = 34;
const GUTTER = 66;
const SPREAD = 4.5;

const pen = document.createElement("canvas").getContext("2d");
const NAMES = { client: "Client", a: "Semel", b: "Semel B", service: "Payments service" };

function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

function widthOf(text, font) {
  pen.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

/** Where lanes and rows lie. */
function layout(lanes, rows, width) {
  const [left, right] = [GUTTER + 62, width - 92];
  const x = Object.fromEntries(lanes.map((lane, at) => [lane, left + ((right - left) * at) / (lanes.length - 1)]));
  const y = new Map();
  const height = lanes.length > 3 ? LOW_ROW : ROW;
  let at = HEAD + 30;
  rows.forEach((row, number) => {
    const extra = row.kind === "kill" ? 8 : row.from === row.to ? 0 : (row.count - 1) * SPREAD;
    y.set(row, at);
    // Time that passes is room on the page.
    const pause = number + 1 < rows.length ? (rows[number + 1].at - row.at) / 1000 : 0;
    at += height + extra + Math.min(MAX_PAUSE, Math.max(0, pause) * 26);
  });
  return { x, y, lanes, width, bottom: at, reach: 7 };
}

const nameIn = (lanes) => (lane) => (lane === "a" && lanes.includes("b") ? "Semel A" : NAMES[lane]);

function heads({ x, lanes, width }) {
  return lanes.map((lane) => {
    const name = nameIn(lanes)(lane);
    const wide = Math.max(96, widthOf(name, "620 15px") + 30);
    const middle = Math.min(x[lane], width - wide / 2);
    return s("g", { class: `head ${lane === "a" || lane === "b" ? "semel" : ""}` },
      s("rect", { x: middle - wide / 2, y: 0, width: wide, height: HEAD, rx: 9 }),
      s("text", { x: middle, y: 22.5 }, name));
  });
}

/** The vertical lines; the one of a killed sidecar is broken until it runs again. */
function lives({ x, y, lanes, bottom }, rows) {
  return lanes.flatMap((lane) => {
    const killed = rows.find((row) => row.kind === "kill" && row.from === lane);
    const line = (from, to, isDead) => s("line", { class: isDead ? "life dead" : "life", x1: x[lane], x2: x[lane], y1: from, y2: to });
    if (!killed) return [line(HEAD, bottom, false)];
    const again = rows.find((row) => row.label === "started again" && row.from === lane);
    const dead = again ? y.get(again) : bottom;
    return [line(HEAD, y.get(killed), false), line(y.get(killed), dead, true), ...(again ? [line(dead, bottom, false)] : [])];
  });
}

function leaseBars({ x, y, bottom }, leases, isDone) {
  return leases.flatMap(({ lane, from, to, lapsed, isKilled }) => {
    const rect = (name, top, end) => s("rect", { class: name, x: x[lane] - 5, y: top, width: 10, height: Math.max(0, end - top), rx: 4 });
    const end = to ? y.get(to) : bottom;
    const bars = [rect(to || isDone ? "lease" : "lease live", y.get(from), end)];
    if (isKilled) bars.push(rect("lease gone", end, lapsed ? y.get(lapsed) : bottom));
    return bars;
  });
}

/** The middle of the service’s bar number `at` of `all`. */
const beside = (at, all) => (at - (all - 1) / 2) * 8;

/** Whether the effect is a duplicate. */
const isTooMany = (bar) => Boolean(bar.to && bar.to.label.endsWith("again") && bar.to.tone === "bad");

function effectBars({ x, y, bottom }, bars) {
  return bars.map((bar) => {
    const together = bars.filter((other) => other.from === bar.from).sort((one, other) => isTooMany(one) - isTooMany(other));
    // Bars that overlap in time stand beside each other.
    const before = bars.filter((other) => other !== bar && y.get(other.from) < y.get(bar.from) && (!other.to || y.get(other.to) > y.get(bar.from)));
    const shift = together.length > 1 ? beside(together.indexOf(bar), together.length) : before.length * 13;
    const wide = together.length > 1 ? 5 : 10;
    const end = bar.to ? y.get(bar.to) : Math.max(bottom - 8, y.get(bar.from) + 14);
    const name = `effect ${bar.to ? "" : "live"} ${isTooMany(bar) ? "bad" : ""}`;
    return s("rect", { class: name, x: x.service + shift - wide / 2, y: y.get(bar.from), width: wide, height: end - y.get(bar.from), rx: 2.5 });
  });
}

/** How far from a lane’s middle an arrow ends: bars that stand beside each other need room. */
function reachOf(bars) {
  const together = bars.filter((bar) => bar.from === bars[0].from).length;
  return together > 1 ? together * 4 + 5 : 7;
}

function arrow({ x, y, lanes, reach }, row) {
  const [start, end] = [x[row.from], x[row.to]];
  const way = Math.sign(end - start);
  const away = (lane) => ({ client: 2, service: reach })[lane] ?? 7;
  const tip = row.lost ? start + (end - start) * 0.66 : end - way * away(row.to);
  const tail = start + way * away(row.from);
  const isBack = row.kind === "reply" || row.kind === "end";
  const group = s("g", { class: `arrow ${row.tone} ${isBack ? "back" : ""} ${row.count > 1 ? "thin" : ""}` });
  for (let at = 0; at < row.count; at += 1) {
    const level = y.get(row) + at * SPREAD;
    group.append(s("line", { x1: tail, x2: row.lost ? tip : tip - way * 7, y1: level, y2: level }));
    if (row.lost) continue;
    const half = row.count > 1 ? 2.5 : 4.5;
    group.append(s("polygon", { points: `${tip},${level} ${tip - way * 9},${level - half} ${tip - way * 9},${level + half}` }));
  }
  if (row.lost) {
    const level = y.get(row);
    for (const slope of [-1, 1]) {
      group.append(s("line", { class: "cross", x1: tip - 5, x2: tip + 5, y1: level - 5 * slope, y2: level + 5 * slope }));
    }
  }
  // Beside the client or the service, whichever is at one end.
  const [edge, next] = row.from === "client" || row.to === "client" ? [lanes[0], lanes[1]] : [lanes.at(-2), lanes.at(-1)];
  const text = row.count > 1 ? `${row.count} × ${row.label}` : row.label;
  const isShort = row.lost && Math.abs(lanes.indexOf(row.from) - lanes.indexOf(row.to)) === 1;
  const middle = isShort ? (tip + tail) / 2 : (x[edge] + x[next]) / 2;
  group.append(s("text", { class: "label", x: middle, y: y.get(row) - 8 }, text));
  return group;
}

function pill({ x, y, width }, row) {
  const text = row.count > 1 ? `${row.count} × ${row.label}` : row.label;
  const wide = widthOf(text, "600 13px") + 24;
  const middle = Math.max(GUTTER + wide / 2 - 4, Math.min(x[row.from], width - wide / 2));
  const box = { x: middle - wide / 2, y: y.get(row) - 13, width: wide, height: 26, rx: 13 };
  return s("g", { class: `pill ${row.kind === "kill" ? "kill" : row.tone}` },
    s("rect", box), s("text", { x: middle, y: y.get(row) + 4.5 }, text));
}

/** Draws a run into `place`, and its steps as words into `steps`. Without a run it draws the usual story. */
export function draw(place, steps, shownRun) {
  const run = shownRun ?? EXAMPLE;
  const lanes = lanesOf(run);
  const { rows, bars } = rowsOf(run);
  const room = layout(lanes, rows, Math.max(560, place.clientWidth));
  if (bars.length > 0) room.reach = reachOf(bars);
  const height = Math.max(room.bottom, HEAD + 150);
  const shown = Number(place.dataset.run) === run.number ? Number(place.dataset.rows) : 0;
  const fresh = (element, at) => { if (at >= shown) element.classList.add("fresh"); return element; };
  const isPill = (row) => row.from === row.to;
  const time = (row) => s("text", { class: "time", x: 0, y: room.y.get(row) + 4 }, `${(row.at / 1000).toFixed(2)} s`);
  place.replaceChildren(s("svg", { width: room.width, height, role: "img", "aria-label": "Sequence diagram; its steps follow as a list" },
    lives({ ...room, bottom: height }, rows), heads(room),
    leaseBars(room, leasesOf(rows), run.is_done), effectBars(room, bars),
    rows.map((row, at) => (isPill(row) ? fresh(pill(room, row), at) : null)),
    rows.map((row, at) => (isPill(row) ? null : fresh(arrow(room, row), at))),
    shownRun ? rows.map(time) : null));
  place.dataset.run = run.number;
  place.dataset.rows = rows.length;
  steps.replaceChildren(...rows.map((row) => {
    const item = document.createElement("li");
    item.textContent = stepOf(row, nameIn(lanes));
    return item;
  }));
}
