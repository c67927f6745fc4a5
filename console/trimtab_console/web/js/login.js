// Asks for a token where the console needs one.
import { card, h } from "./dom.js";
import { logIn } from "./session.js";

export function login(root, said, done) {
  const token = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true, maxlength: 200, "aria-describedby": "token-help" });
  const fault = h("p", { class: "fault", role: "alert" }, said ?? ""), button = h("button", { class: "primary" }, "Log in");
  const form = h("form", {
    async onsubmit(event) {
      event.preventDefault();
      button.disabled = true;
      fault.textContent = "";
      try { await logIn(token.value.trim()); done(); }
      catch (error) { fault.textContent = `Not logged in: ${error.message}`; token.select(); }
      finally { button.disabled = false; }
    },
  }, h("label", { for: "token" }, "Token"), token, fault, h("div", { class: "buttons" }, button),
  h("p", { id: "token-help", class: "muted" }, "Whoever runs this console makes one: ", h("code", {}, "trimtab console token NAME --config console.toml")));
  root.replaceChildren(h("h1", {}, "Log in"), card("Your token", "third", form));
  token.focus();
}
