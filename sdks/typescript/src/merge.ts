/** The given settings, the later ones over the earlier. One that is undefined leaves what was said before. */
export function merged<T extends object>(first: T, ...later: (Partial<T> | undefined)[]): T {
  const out = { ...first };
  for (const given of later) {
    for (const [name, value] of Object.entries(given ?? {})) {
      if (value !== undefined) (out as Record<string, unknown>)[name] = value;
    }
  }
  return out;
}
