// Elements without a template language: text is always text, so nothing that a caller sent becomes markup.

/** An element. `props`: `on` for listeners, `class`, `aria-…`, attributes; `false`, `null` and `undefined` are left out. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "value") {
      element.value = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Changes the text only where it is another one: a screen reader is told of changes. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A table whose rows are replaced, with the focus kept on the row's key where it was. */
export function table({ caption, columns, empty }) {
  const body = h("tbody");
  const head = columns.map((column) => h("th", { scope: "col", class: column.class }, column.title));
  const none = h("div", { class: "empty" }, empty);
  const wrapped = h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, head)), body));
  const element = h("div", {}, wrapped, none);
  return {
    element,
    rows(items, cells) {
      const held = document.activeElement?.closest?.("[data-hold]")?.dataset.hold;
      body.replaceChildren(...items.map((item) => h("tr", {}, cells(item).map((cell, at) => {
        const column = columns[at];
        return at === 0
          ? h("th", { scope: "row", class: column.class }, cell)
          : h("td", { class: column.class }, cell);
      }))));
      wrapped.hidden = items.length === 0;
      none.hidden = items.length > 0;
      if (held && !document.activeElement?.dataset?.hold) {
        element.querySelector(`[data-hold="${CSS.escape(held)}"]`)?.focus();
      }
    },
  };
}

/** What to show where there is nothing: what that means, and what to do. */
export function emptyState(title, ...lines) {
  return [h("p", { class: "empty-title" }, title), ...lines.map((line) => h("p", {}, line))];
}

export const code = (text) => h("code", {}, text);

/** A problem, with what to do next. */
export function problemBox(error) {
  return h("div", { class: "problem", role: "alert" },
    h("strong", {}, error.title ?? "That didn’t work"),
    h("p", {}, error.message),
    error.next ? h("p", {}, error.next) : null);
}

/** A key as it may be shown: its first characters and the beginning of its hash. */
export function keyLink(record) {
  const hint = record.key_hint ? `${record.key_hint}…` : "";
  return h("a", { class: "key", href: `#/keys/${record.id}`, "data-hold": `key-${record.id}`, title: record.id },
    h("span", {}, hint), h("span", { class: "hash" }, record.id.slice(0, 10)));
}

const STATES = {
  running: ["Running", "info"],
  completed: ["Completed", "good"],
  failed: ["Failed", "warn"],
  in_doubt: ["In doubt", "bad"],
  released: ["Released", "calm"],
  queued: ["Waiting", "calm"],
  done: ["Done", "good"],
  dead: ["Dead letter", "bad"],
};

export function stateBadge(state) {
  const [text, tone] = STATES[state] ?? [state, "calm"];
  return h("span", { class: `badge ${tone}` }, text);
}
