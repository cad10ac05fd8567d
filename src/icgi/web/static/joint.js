// The joint table of two or three variables, and the most probable configuration.

import { el, percent, small } from "./dom.js";

export class JointPanel {
  constructor(host, asked) {
    this.host = host;
    this.asked = asked; // gives the present question
    const names = host.model.variables.map((v) => v.name);
    const options = (first) => [
      ...(first ? [el("option", { value: "" }, first)] : []),
      ...names.map((name) => el("option", { value: name }, name)),
    ];
    this.choices = [null, null, "(no third)"].map((first, k) =>
      el("select", { "aria-label": `Variable ${k + 1} of the joint` }, options(first)));
    if (names.length > 1) this.choices[1].value = names[1];
    this.body = el("div", { class: "table" });
    this.element = el("section", { class: "panel joint", "aria-label": "Joint" },
      el("div", { class: "tools" }, this.choices,
        el("button", { class: "ask", onclick: () => this.ask() }, "Joint table"),
        el("button", { onclick: () => this.best() }, "Most probable configuration")),
      this.body);
  }

  choose(name) {
    if (this.choices[1].value === name) this.choices[1].value = this.choices[0].value;
    this.choices[0].value = name;
  }

  stale() {
    this.body.classList.add("stale");
  }

  async ask() {
    const names = [...new Set(this.choices.map((choice) => choice.value).filter(Boolean))];
    await this.fill(() => this.host.joint(this.asked(), names), (found) => this.table(found));
  }

  async best() {
    await this.fill(() => this.host.mpe(this.asked()), (found) =>
      el("div", {},
        el("p", { class: "dim" }, found.status === "exact" ? "Exact: no configuration is more probable."
          : "The best found; there may be a more probable one."),
        el("table", {}, Object.entries(found.configuration).map(([name, state]) =>
          el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, state))))));
  }

  async fill(work, draw) {
    this.stale();
    if (!this.body.children.length) this.body.append(el("p", { class: "dim" }, "Computing…"));
    try {
      this.body.replaceChildren(draw(await work()));
    } catch (problem) {
      this.body.replaceChildren(el("p", { role: "alert" }, problem.message));
    }
    this.body.classList.remove("stale");
  }

  // The last variable across, all combinations of the others down.
  table(found) {
    const across = found.states[found.states.length - 1];
    const down = found.states.slice(0, -1).reduce(
      (rows, states) => rows.flatMap((row) => states.map((state) => [...row, state])), [[]]);
    const names = found.variables;
    const top = Math.max(...found.table);
    const cell = (p) => {
      const made = el("td", { title: String(p) }, percent(p));
      made.style.setProperty("--share", String(top > 0 ? p / top : 0));
      return made;
    };
    return el("div", {},
      el("table", { class: "heat" },
        el("thead", {}, el("tr", {}, names.slice(0, -1).map((name) => el("th", { scope: "col" }, name)),
          across.map((state) => el("th", { scope: "col" }, `${names[names.length - 1]} = ${state}`)))),
        el("tbody", {}, down.map((row, k) => el("tr", {},
          row.map((state) => el("th", { scope: "row" }, state)),
          across.map((_, x) => cell(found.table[k * across.length + x])))))),
      el("p", { class: "dim" }, 
        [`By ${found.engine_name || "an unknown engine"}`, found.status, found.note].filter(Boolean).join(", ") +
        (found.std_error ? `; standard error of a cell at most ${small(found.std_error)}. ` : ". ") +
        (found.advice || "")));
  }
}
