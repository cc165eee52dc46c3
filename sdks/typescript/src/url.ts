/** URLs of a client: a path never changes the host that its base names, which is where the credentials go. */

/** What may follow `?`. */
export type Query = URLSearchParams | Record<string, string | number | boolean | null | undefined | readonly (string | number | boolean)[]>;

/** Whether it needs no base. */
export const isWhole = (url: string): boolean => /^[a-z][a-z0-9+.-]*:\/\//i.test(url);

/** A base without what would end up in the middle of a URL. */
export function checkBase(base: string): string {
  if (/[?#]/.test(base)) throw new TypeError("baseUrl must have neither a query nor a fragment");
  return base.replace(/\/+$/, "");
}

/** The path after its base, with one slash between them. `base` has been checked. */
export function joined(base: string, url: string): string {
  if (isWhole(url) || base === "" || url === "") return base === "" || isWhole(url) ? url : base;
  const rest = /^[?#]/.test(url) ? url : `/${url.replace(/^\/+/, "")}`;
  return base + rest;
}

/** With a query after the one that it may have. */
export function withQuery(url: string, query: Query | undefined): string {
  if (query === undefined) return url;
  const found = query instanceof URLSearchParams ? query : new URLSearchParams(pairsOf(query));
  const text = found.toString();
  if (text === "") return url;
  const [front = "", fragment] = url.split("#", 2);
  return `${front}${front.includes("?") ? "&" : "?"}${text}${fragment === undefined ? "" : `#${fragment}`}`;
}

function pairsOf(query: Exclude<Query, URLSearchParams>): [string, string][] {
  return Object.entries(query).flatMap(([name, value]) => {
    const items = typeof value === "object" && value !== null ? value : [value];
    return items.flatMap((item): [string, string][] => (item === undefined || item === null ? [] : [[name, String(item)]]));
  });
}
