// Changes: who, why, and an "are you sure" where the effect may happen again. Each is fenced by what was looked at.

import { post } from "./api.js";
import { h, problemBox, stateBadge } from "./dom.js";
import { since, span } from "./format.js";

const ACTOR = "semel.actor";

/** Opens a dialog; answers with what `act` gave once it worked, or `null` where nothing was done. */
function ask({ title, body, label, danger, act }) {
  const failed = h("div");
  const done = h("button", { class: danger ? "danger" : "primary" }, label);
  const cancel = h("button", { type: "button" }, "Cancel");
  const form = h("form", {}, h("h2", { id: "dialog-title" }, title), body, failed, h("div", { class: "buttons" }, cancel, done));
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
  const before = document.activeElement;
  document.body.append(dialog);
  return new Promise((resolve) => {
    let result = null;
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      before?.focus?.();
      resolve(result);
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      failed.replaceChildren();
      done.disabled = true;
      try {
        result = await act(form);
        dialog.close();
      } catch (error) {
        failed.replaceChildren(problemBox(error));
      }
      done.disabled = false;
    });
    dialog.showModal();
  });
}

function about(record) {
  return h("dl", { class: "facts small" },
    h("div", {}, h("dt", {}, "Key"), h("dd", { class: "key" }, h("span", {}, `${record.key_hint}…`), " ", h("span", { class: "hash" }, record.id.slice(0, 16)))),
    h("div", {}, h("dt", {}, "Scope"), h("dd", {}, record.scope)),
    h("div", {}, h("dt", {}, "State"), h("dd", {}, stateBadge(record.state))),
    h("div", {}, h("dt", {}, "Last written"), h("dd", {}, since(record.written_time))),
    h("div", {}, h("dt", {}, "Attempt"), h("dd", {}, `${record.attempt} of ${record.max_attempts}`)),
    h("div", {}, h("dt", {}, "Forgotten in"), h("dd", {}, span(record.expires_in_ms))));
}

/** Who and why: both go to the audit trail. */
function signature() {
  return h("div", { class: "pair" },
    h("div", { class: "field" }, h("label", { for: "actor" }, "Who you are"),
      h("input", { id: "actor", name: "actor", required: true, maxlength: "128", pattern: "[ -~]+", autocomplete: "username", value: sessionStorage.getItem(ACTOR) ?? "" })),
    h("div", { class: "field" }, h("label", { for: "reason" }, "Reason"),
      h("input", { id: "reason", name: "reason", required: true, maxlength: "500", pattern: "[ -~]+", autocomplete: "off", placeholder: "what you found out, and where" })));
}

function choices(name, options) {
  return h("fieldset", { class: "choices" }, h("legend", {}, name === "outcome" ? "What happened?" : "What should become of it?"), options.map(([value, title, more], at) =>
    h("label", {}, h("input", { type: "radio", name, value, required: true, checked: name === "to" && at === 0 }), h("span", {}, h("b", {}, title), h("small", {}, more)))));
}

/** Shown only for some choices; then it has to be ticked. */
function certainty(text) {
  const box = h("input", { type: "checkbox", name: "sure" });
  const element = h("label", { class: "check sure", hidden: true }, box, text);
  return { element, set: (needed) => { element.hidden = !needed; box.required = needed; } };
}

const whoAndWhy = (said) => {
  sessionStorage.setItem(ACTOR, said.get("actor"));
  return { actor: said.get("actor"), reason: said.get("reason") };
};

const signed = (form, record) => {
  const said = new FormData(form);
  return { said, change: { fence: record.fence, ...whoAndWhy(said) } };
};

/** The answer to keep, byte for byte: what is parsed and written again has other numbers. */
function answerOf(said) {
  const answer = {};
  if (said.get("status")) answer.status = Number(said.get("status"));
  const text = said.get("body");
  if (text === "") return answer;
  const json = isJson(text);
  const bytes = new TextEncoder().encode(json ? text.trim() : text);
  answer.body_base64 = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  if (json && answer.status) answer.headers = [{ name: "content-type", value: "application/json" }];
  return answer;
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

export function resolveDialog(record) {
  const sure = certainty("I have checked that it did not happen. The next caller runs it.");
  const answer = h("div", { class: "pair answer", hidden: true },
    h("div", { class: "field narrow" }, h("label", { for: "answer-status" }, "HTTP status"), h("input", { id: "answer-status", name: "status", type: "number", min: "200", max: "599" }), h("small", {}, "empty: a function’s answer")),
    h("div", { class: "field" }, h("label", { for: "answer-body" }, "Body that every caller gets from now on"), h("textarea", { id: "answer-body", name: "body", rows: "3", spellcheck: "false", placeholder: "{\"charge\": \"ch_1\"}" })));
  const outcome = choices("outcome", [
    ["completed", "It happened.", "Keep an answer: every caller gets it from now on."],
    ["failed", "It failed, for good.", "Keep the failure: every caller gets it from now on."],
    ["released", "It did not happen.", "Free the key: the next caller runs it."],
  ]);
  outcome.addEventListener("change", (event) => {
    sure.set(event.target.value === "released");
    answer.hidden = event.target.value === "released";
  });
  return ask({
    title: "Resolve a doubt", label: "Resolve", body: [about(record), outcome, answer, sure.element, signature()],
    act: (form) => {
      const { said, change } = signed(form, record);
      change.outcome = said.get("outcome");
      if (change.outcome !== "released") change.answer = answerOf(said);
      return post(`records/${record.id}/resolve`, change);
    },
  });
}

export function unlockDialog(record) {
  const sure = certainty("I know that its owner is gone, or that the effect may happen twice.");
  const to = choices("to", [
    ["by_policy", "As its policy says", record.crash === "hold" ? "It becomes a doubt, to be resolved." : "The next caller runs it."],
    ["in_doubt", "In doubt", "Nobody runs it until it is resolved."],
    ["released", "Free", "The next caller runs it, even if the policy says otherwise."],
  ]);
  const releases = (choice) => choice === "released" || (choice === "by_policy" && record.crash !== "hold");
  to.addEventListener("change", (event) => sure.set(releases(event.target.value)));
  sure.set(releases("by_policy"));
  return ask({
    title: "Unlock a running record", label: "Unlock", danger: true,
    body: [about(record), h("p", { class: "note" }, "Should its owner live after all, its settlement is refused from now on; what it has done stands."), to, sure.element, signature()],
    act: (form) => {
      const { said, change } = signed(form, record);
      change.to = said.get("to");
      return post(`records/${record.id}/unlock`, change);
    },
  });
}

export function retryDialog(job) {
  const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
  const facts = h("dl", { class: "facts small" }, fact("Job", h("span", { class: "hash" }, job.job_id)), fact("Kind", job.kind),
    fact("State", stateBadge(job.state)), fact("Attempt", `${job.attempt} of ${job.max_attempts}`), fact("Why it failed", job.error ?? "–"));
  return ask({
    title: "Give a dead letter another chance", label: "Retry",
    body: [facts, h("p", { class: "note" }, "The same job, with the same id, waits again with all its attempts, and its key is in progress again. Make sure that what failed is mended."), signature()],
    act: (form) => post(`jobs/${job.job_id}/retry`, whoAndWhy(new FormData(form))),
  });
}
