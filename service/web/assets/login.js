// The box that asks for a token, and what became of the last one.

import * as api from "./api.js";
import { h, replace } from "./dom.js";

export function showLogin(main, { message, entered }) {
  const input = h("input", { type: "password", name: "token", autocomplete: "off", placeholder: "bace_…", "aria-label": "Token", required: true });
  const submit = (event) => {
    event.preventDefault();
    api.setToken(input.value.trim());
    entered();
  };
  replace(main, h("section", { class: "panel login" },
    h("h1", null, "Sign in"),
    h("p", { class: "soft" }, "This page reads the API with a token of yours. It stays in this browser tab and is forgotten with it."),
    message ? h("p", { class: "notice", role: "alert" }, message) : null,
    h("form", { submit }, input, h("button", { class: "primary", type: "submit" }, "Sign in")),
    h("p", { class: "faint small" }, "An administrator makes one with ", h("code", { class: "nowrap" }, "bace token create NAME --role viewer"), ".")));
  input.focus();
}
