// Plots of the last minutes, with uPlot. A plot is a figure with a caption, a legend of the newest values, and the same
// in words for those who can't see it.

import { h, say } from "./dom.js";
import { clock } from "./format.js";

const HEIGHT = 190;
const INCREMENTS = [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000];

const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Seconds put together, so that a plot has about as many points as can be told apart. */
export function steps(samples, seconds) {
  const size = Math.max(1, Math.round(seconds / 120));
  const groups = [];
  for (const sample of samples.slice(-seconds - size)) {
    const at = Math.floor(sample.number / size);
    if (groups.at(-1)?.at === at) groups.at(-1).samples.push(sample);
    else groups.push({ at, samples: [sample] });
  }
  // A group that isn't whole yet would dip.
  return groups.filter((group, index) => index < groups.length - 1 || group.samples.length === size)
    .map((group) => group.samples);
}

/**
 * `series`: `{label, ink, value: samples → number|null, shown: number → text, dash, stacked}`.
 * Stacked ones are put on top of each other, in their order. `log`: a logarithmic scale; `whole`: of whole numbers.
 */
export function chart({ title, note, series, log, whole, floor = 1 }) {
  const values = series.map((one) => h("b", {}, "–"));
  const legend = h("ul", { class: "legend" }, series.map((one, at) =>
    h("li", {}, h("i", { class: `mark ${one.ink}${one.dash ? " dashed" : ""}`, "aria-hidden": "true" }), `${one.label} `, values[at])));
  const place = h("div", { class: "plot", role: "img", "aria-label": title });
  const element = h("figure", { class: "card chart" },
    h("figcaption", {}, h("h3", {}, title), note ? h("p", { class: "note" }, note) : null), legend, place);
  let plot = null;
  let range = [0, 1];
  let columns = null;
  const stacked = series.some((one) => one.stacked);

  const build = () => {
    plot?.destroy();
    const grid = { stroke: ink("--grid"), width: 1 };
    const axis = { stroke: ink("--faint"), font: `11px ${ink("--sans")}`, ticks: { show: false }, grid };
    // Of a logarithmic scale, only the powers of ten.
    const powers = (_, splits) => splits.map((split) => (Math.abs(Math.log10(split) % 1) < 1e-9 ? split : null));
    const marks = log ? { filter: powers, grid: { ...grid, filter: powers } } : { incrs: INCREMENTS.slice(whole ? 1 : 0) };
    plot = new uPlot({
      width: Math.max(120, place.clientWidth),
      height: HEIGHT,
      legend: { show: false },
      padding: [8, 22, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { size: 6 }, sync: { key: "semel" } },
      scales: {
        x: { time: true, range: () => range },
        y: log
          ? { distr: 3, range: (_, low, high) => [10 ** Math.floor(Math.log10(Math.max(0.1, low ?? 0.1))), 10 ** Math.ceil(Math.log10(Math.max(1, high ?? 1) * 1.001))] }
          : { range: (_, __, high) => [0, Math.max(floor, (high ?? 0) * 1.15)] },
      },
      axes: [
        { ...axis, size: 24, gap: 6, space: 90, values: (_, ticks) => ticks.map((tick) => clock(tick * 1000)), grid: { show: false } },
        {
          ...axis, size: 50, space: 34, ...marks,
          values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : series[0].axis?.(tick) ?? String(tick))),
        },
      ],
      series: [{}, ...series.map((one, at) => ({
        label: one.label,
        stroke: ink(`--${one.ink}`),
        width: 1.75,
        dash: one.dash ? [4, 4] : undefined,
        fill: one.fill || (stacked && at === 0) ? ink(`--${one.ink}-soft`) : undefined,
        points: { show: false },
        spanGaps: false,
      }))],
      bands: stacked ? series.map((one, at) => ({ series: [at + 1, at], fill: ink(`--${one.ink}-soft`) })).slice(1) : undefined,
      hooks: { setCursor: [(self) => words(self.cursor.idx)] },
    }, columns ?? [[], ...series.map(() => [])], place);
  };

  let raw = [];
  /** The legend: of the moment under the pointer, else the newest. */
  const words = (index) => {
    const at = index ?? (columns?.[0].length ?? 0) - 1;
    const texts = series.map((one, number) => {
      const value = raw[number]?.[at];
      return value === null || value === undefined ? "–" : one.shown(value);
    });
    texts.forEach((text, number) => say(values[number], text));
    return texts;
  };

  const draw = (samples, seconds) => {
    const groups = steps(samples, seconds);
    const newest = samples.at(-1)?.time_ms ?? Date.now();
    range = [newest / 1000 - seconds, newest / 1000];
    raw = series.map((one) => groups.map((group) => one.value(group)));
    let under = groups.map(() => 0);
    const drawn = raw.map((column) => {
      if (!stacked) return column;
      under = column.map((value, at) => value + under[at]);
      return under;
    });
    columns = [groups.map((group) => group.at(-1).time_ms / 1000), ...drawn];
    if (plot) plot.setData(columns);
    else if (place.clientWidth > 0) build();
    const texts = words(plot?.cursor.idx ?? null);
    place.setAttribute("aria-label", `${title}. Newest: ${series.map((one, at) => `${one.label} ${texts[at]}`).join(", ")}.`);
  };

  const resized = new ResizeObserver(() => {
    if (!plot) return build();
    plot.setSize({ width: Math.max(120, place.clientWidth), height: HEIGHT });
  });
  resized.observe(place);
  const themed = () => build();
  addEventListener("semel:theme", themed);
  return {
    element,
    draw,
    end() {
      resized.disconnect();
      removeEventListener("semel:theme", themed);
      plot?.destroy();
    },
  };
}

export const perSecond = (...names) => (group) => {
  const ms = group.reduce((sum, sample) => sum + sample.span_ms, 0);
  return (1000 * group.reduce((sum, sample) => sum + names.reduce((s, name) => s + sample[name], 0), 0)) / ms;
};

export const highest = (name) => (group) => Math.max(...group.map((sample) => sample[name]));

/** The highest of a quantile over a group: a spike must not be averaged away. */
export const quantile = (name, which) => (group) => {
  const seen = group.map((sample) => sample[name]?.[which]).filter((value) => value !== undefined);
  return seen.length > 0 ? Math.max(...seen) : null;
};
