// The usual story, for a page on which nothing has happened yet.

const step = (kind, from, to, label, tone = "calm", effect = null) => ({ at: 0, kind, from, to, label, tone, lost: false, effect });

export const EXAMPLE = {
  number: 0,
  scenario: "send",
  with_semel: true,
  is_done: true,
  events: [
    step("request", "client", "a", "a request with a key"),
    step("claim", "a", "a", "claims the key", "info"),
    step("begin", "a", "service", "the request, once", "calm", 1),
    step("end", "service", "a", "the response", "good", 1),
    step("store", "a", "a", "stores the response", "good"),
    step("reply", "a", "client", "the response", "good"),
    step("request", "client", "a", "the same request again"),
    step("note", "a", "a", "knows the key", "replayed"),
    step("reply", "a", "client", "the stored response", "good"),
  ],
};
