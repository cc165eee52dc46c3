// What is known of the last minutes: asked for every second, for as long as somebody looks.

import { get } from "./api.js";

const EVERY = 1000;

export const live = {
  /** The newest answer; `null` before the first. */
  view: null,
  /** One for each second, oldest first. */
  samples: [],
  /** Why there is no newer answer, where that is so. */
  error: null,
  paused: false,
  listeners: new Set(),

  /** Calls `listener` now where something is known, and on every change; answers with how to stop that. */
  follow(listener) {
    this.listeners.add(listener);
    if (this.view || this.error) listener(this);
    return () => this.listeners.delete(listener);
  },

  forget() {
    this.view = null;
    this.samples = [];
  },
};

async function ask() {
  const last = live.samples.at(-1)?.number;
  const view = await get(last === undefined ? "live" : `live?after=${last}`);
  // Less time than before: another process answers, and its seconds begin anew.
  if (live.view && view.uptime_ms < live.view.uptime_ms) {
    live.forget();
    return ask();
  }
  live.view = view;
  live.samples = live.samples.concat(view.samples).slice(-view.kept_seconds);
  live.error = null;
}

/** Begins to ask; a failure is asked about again, more and more seldom. */
export function begin() {
  let failures = 0;
  const round = async () => {
    if (!document.hidden && !live.paused) {
      try {
        await ask();
        failures = 0;
      } catch (error) {
        failures += 1;
        live.error = error;
        if (error.status === 401) return;
      }
      for (const listener of live.listeners) listener(live);
    }
    setTimeout(round, EVERY * Math.min(5, 1 + failures));
  };
  return round();
}

/** Sums over the last `seconds`, as `{ms, of: name → count}`. */
export function sums(seconds) {
  const past = live.samples.slice(-seconds);
  const ms = past.reduce((sum, sample) => sum + sample.span_ms, 0);
  const of = (...names) => past.reduce((sum, sample) => sum + names.reduce((s, name) => s + sample[name], 0), 0);
  return { ms, seconds: past.length, of, perSecond: (...names) => (ms > 0 ? (1000 * of(...names)) / ms : 0) };
}

/** Requests with a key, however they ended. */
export const KEYED = ["ran", "handed_out", "replayed", "conflicts", "held", "in_flight", "in_doubt", "unavailable", "unprotected", "other"];
/** Those that got neither a run nor a replay. */
export const PROBLEMS = ["conflicts", "held", "in_flight", "in_doubt", "unavailable", "other"];

/** `ok`, or what is wrong and since when. */
export function health() {
  const { view, samples, error } = live;
  if (error && error.status !== 401) return { state: "lost", since: samples.at(-1)?.time_ms };
  if (!view) return { state: "unknown" };
  const isBad = (sample) => sample.breaker !== "closed" || (sample.store_errors > 0 && sample.store_errors === sample.store_calls);
  const last = samples.at(-1);
  if (view.store.reachable && view.engine.breaker === "closed" && !(last && isBad(last))) return { state: "ok" };
  let since = last?.time_ms;
  for (const sample of samples.toReversed()) {
    if (isBad(sample)) since = sample.time_ms;
    else if (since - sample.time_ms > 5000) break;
  }
  // The size is asked for every five seconds: what failed since then knows better.
  const failedLately = samples.slice(-6).some((sample) => sample.store_errors > 0);
  return { state: view.store.reachable && !failedLately ? "recovering" : "outage", since };
}
