// Numbers and times for people.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (n) => (n >= 100_000 ? compact.format(n) : whole.format(n));

export const rate = (n) => (n === 0 ? "0" : n < 10 ? one.format(n) : whole.format(n));

export const percent = (part, all) => (all > 0 ? `${one.format((100 * part) / all)} %` : "–");

/** Milliseconds, with as many digits as mean something. */
export function span(ms) {
  if (ms === undefined || ms === null) return "–";
  if (ms < 10) return `${one.format(ms)} ms`;
  if (ms < 1000) return `${whole.format(ms)} ms`;
  if (ms < 60_000) return `${one.format(ms / 1000)} s`;
  if (ms < 3_600_000) return `${whole.format(Math.floor(ms / 60_000))} min`;
  if (ms < 172_800_000) return `${one.format(ms / 3_600_000)} h`;
  return `${one.format(ms / 86_400_000)} days`;
}

export const since = (time, now = Date.now()) => {
  const ms = Math.max(0, now - Date.parse(time));
  return ms < 1000 ? "just now" : `${span(ms)} ago`;
};

export const clock = (time, millis = false) => new Date(time).toLocaleTimeString("en-GB", {
  hour: "2-digit", minute: "2-digit", second: "2-digit", ...(millis ? { fractionalSecondDigits: 3 } : {}),
});

export const moment = (time) => {
  const at = new Date(time);
  const today = at.toDateString() === new Date().toDateString();
  const day = today ? "" : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })}, `;
  return day + clock(time);
};
