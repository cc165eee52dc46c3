// Asks for the admin token, until it is accepted.

import { get, signIn, signOut } from "./api.js";
import { code, h, problemBox } from "./dom.js";

export function askForToken() {
  const failed = h("div");
  const input = h("input", { id: "token", type: "password", required: true, autocomplete: "current-password", spellcheck: "false" });
  const button = h("button", { class: "primary" }, "Sign in");
  const form = h("form", {}, h("h1", { id: "sign-in-title" }, "Sign in to Semel"),
    h("p", { class: "note" }, "The admin token is in the file that ", code("admin.token_file"), " names. It is kept for this tab alone, and forgotten with it."),
    h("div", { class: "field" }, h("label", { for: "token" }, "Admin token"), input), failed, h("div", { class: "buttons" }, button));
  const dialog = h("dialog", { "aria-labelledby": "sign-in-title", class: "sign-in" }, form);
  // There is nothing to see without it.
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  document.body.append(dialog);
  return new Promise((resolve) => {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      signIn(input.value.trim());
      try {
        await get("live?after=9007199254740991");
        dialog.close();
        dialog.remove();
        resolve();
      } catch (error) {
        signOut();
        if (error.status === 401) {
          error.title = "This token isn’t accepted";
          error.message = "It may be of another server, or an older one.";
          error.next = "Copy it again from the file that admin.token_file names on this server.";
        }
        failed.replaceChildren(problemBox(error));
        input.select();
      }
      button.disabled = false;
    });
    dialog.showModal();
  });
}
