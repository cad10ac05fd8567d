// The page of `icgi serve`: which model, what is known (both in the address), and the viewer.

import { el } from "./dom.js";
import { addModel, httpHost, models } from "./http.js";
import { fromAddress, toAddress } from "./question.js";
import { Viewer } from "./viewer.js";

const root = document.getElementById("viewer");

function say(text, role = "status") {
  root.replaceChildren(el("p", { class: "icgi message", role }, text));
}

const FORMATS = ["uai", "bif", "xmlbif", "json", "mtx", "gset"];

function ident() {
  return new URLSearchParams(location.hash.replace(/^#/, "")).get("model");
}

async function send(file, list) {
  const [, name, ending] = file.name.match(/^(.*?)(?:\.(\w+))?(?:\.gz)?$/);
  const format = { xml: "xmlbif", bifxml: "xmlbif" }[(ending || "").toLowerCase()] ||
    FORMATS.find((each) => each === (ending || "").toLowerCase()) || "uai";
  try {
    const added = await addModel(name || file.name, format, await file.arrayBuffer());
    location.hash = new URLSearchParams({ model: added.id });
    if (list.some((m) => m.id === added.id)) await open();
  } catch (problem) {
    say(problem.message, "alert");
  }
}

function chooser(list, chosen) {
  const select = el("select", { "aria-label": "Model", class: "model",
    onchange: () => (location.hash = new URLSearchParams({ model: select.value })) },
  list.map((m) => el("option", { value: m.id }, m.name)));
  select.value = chosen;
  const file = el("input", { type: "file", accept: [...FORMATS.map((each) => `.${each}`), ".xml", ".gz"].join(), hidden: true,
    onchange: () => file.files.length && send(file.files[0], list) });
  return el("span", { class: "chooser" }, select, file,
    el("button", { title: `Open a file: ${FORMATS.join(", ")}`, onclick: () => file.click() }, "Open…"));
}

let written = null;

async function open() {
  say("Loading…");
  try {
    let list = await models();
    for (let k = 0; !list.length && k < 40; k += 1) {
      say("Waiting for the models to be read…");
      await new Promise((wake) => setTimeout(wake, 500));
      list = await models();
    }
    const chosen = ident() || (list[0] && list[0].id);
    if (!chosen) {
      root.replaceChildren(el("div", { class: "icgi message" },
        el("p", {}, `No model is served. Open a file to begin: ${FORMATS.join(", ")}.`), chooser(list, null)));
      return;
    }
    const host = await httpHost(chosen);
    document.title = `${host.model.name} – icgi`;
    host.question = fromAddress(location.hash);
    host.chooser = chooser(list, chosen);
    host.changed = (question) => {
      const words = new URLSearchParams([["model", chosen], ...toAddress(question)]);
      written = `#${words}`;
      history.replaceState(null, "", written);
    };
    host.changed(host.question);
    new Viewer(root, host);
  } catch (problem) {
    say(problem.message, "alert");
  }
}

addEventListener("hashchange", () => {
  if (location.hash !== written) open();
});
open();
