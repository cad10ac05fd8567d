// A model to look at and to click: the one component of the browser, the notebook and the report.

import { el, exponential } from "./dom.js";
import { GraphPanel } from "./graph.js";
import { JointPanel } from "./joint.js";
import { VariableList } from "./list.js";
import * as ask from "./question.js";
import { EliminationPanel } from "./steps.js";

// host: {model, readOnly, answer?, question?, engines?, sort?, ask(question, {progress, signal}),
//        graph(around), joint(question, names), mpe(question), eliminate(question, rank),
//        changed?(question), chooser?: element}
export class Viewer {
  constructor(root, host) {
    this.host = host;
    this.question = ask.question(host.question);
    this.past = [];
    this.base = null; // log Z without any evidence, by engine
    this.actions = host.readOnly ? null : {
      select: (name) => this.select(name),
      observe: (name, state) => this.change(ask.observe(this.question, name, state)),
      exclude: (name, state) =>
        this.change(ask.exclude(this.question, name, state, this.states(name))),
      weigh: (name, state, target) => this.change(ask.weigh(
        this.question, name, state, target, this.states(name), this.present(name))),
    };
    this.list = new VariableList(host.model, this.actions, host.sort, host.order);
    this.panels = host.readOnly ? {} : this.makePanels();
    const head = this.head();
    this.root = el("div", { class: "icgi", "data-view": "variables" }, host.readOnly ? null : head,
      el("div", { class: "columns" }, this.list.element,
        host.readOnly ? null : el("div", { class: "side" },
          Object.values(this.panels).map((panel) => panel.element))));
    if (host.readOnly) this.root.classList.add("read-only");
    else this.open("graph", "variables");
    root.replaceChildren(this.root);
    if (head) { // the panel beside the list stays just below what stays at the top
      new ResizeObserver(() => this.root.style.setProperty("--head", `${head.offsetHeight}px`))
        .observe(head);
    }
    if (host.answer) this.show(host.answer);
    else this.refresh();
  }

  makePanels() {
    const asked = () => this.question;
    return {
      graph: new GraphPanel(this.host, (name) => this.select(name)),
      joint: new JointPanel(this.host, asked),
      elimination: new EliminationPanel(this.host, asked),
    };
  }

  head() {
    this.sentence = el("p", { class: "status", role: "status" }, "…");
    this.problem = el("p", { class: "problem", role: "alert", hidden: true });
    this.chips = el("p", { class: "chips" });
    const name = this.host.chooser || el("h1", {}, this.host.model.name);
    if (this.host.readOnly) return null;
    this.undoButton = el("button", { onclick: () => this.undo(), disabled: true }, "Undo");
    this.resetButton = el("button", { onclick: () => this.change({
      ...ask.question(), engine: this.question.engine }) }, "Reset");
    this.engine = el("select", { "aria-label": "Engine",
      onchange: () => this.change({ ...this.question, engine: this.engine.value }) },
    (this.host.engines || [{ name: "auto", words: "" }]).map((e) =>
      el("option", { value: e.name, title: e.words }, e.name)));
    this.engine.value = this.question.engine;
    this.tabs = ["variables", "graph", "joint", "elimination"].map((view) =>
      el("button", { role: "tab", "data-tab": view, onclick: () => this.open(view, view) }, view));
    return el("header", { class: "top" },
      el("div", { class: "tools" }, name, this.engine, this.undoButton, this.resetButton),
      this.sentence, this.problem, this.chips, el("div", { role: "tablist", class: "tabs" }, this.tabs));
  }

  states(name) {
    return this.list.states.get(name);
  }

  present(name) {
    const row = this.list.rows.get(name);
    return this.states(name).map((state) => row.probabilities[state]);
  }

  // `view` on narrow screens, `panel` beside the list on wide ones.
  open(panel, view) {
    if (panel !== "variables") this.root.dataset.panel = panel;
    this.root.dataset.view = view;
    for (const tab of this.tabs) {
      const on = tab.dataset.tab === view || tab.dataset.tab === this.root.dataset.panel;
      tab.setAttribute("aria-selected", String(on));
      tab.classList.toggle("view", tab.dataset.tab === view);
    }
    if (panel === "elimination") this.panels.elimination.load();
    if (panel === "graph" && !this.panels.graph.found) this.panels.graph.load();
  }

  select(name) {
    this.list.select(name);
    this.panels.graph.choose(name);
    this.panels.joint.choose(name);
  }

  change(next) {
    if (JSON.stringify(next) === JSON.stringify(this.question)) return;
    this.past.push(this.question);
    this.set(next);
  }

  undo() {
    if (this.past.length) this.set(this.past.pop());
  }

  set(next) {
    this.question = next;
    this.engine.value = next.engine;
    this.undoButton.disabled = !this.past.length;
    if (this.host.changed) this.host.changed(next);
    this.panels.joint.stale();
    this.refresh();
  }

  async refresh() {
    if (this.running) this.running.abort();
    const running = (this.running = new AbortController());
    const asked = this.question;
    this.root.classList.add("stale");
    this.root.setAttribute("aria-busy", "true");
    this.drawChips();
    try {
      const options = { signal: running.signal, progress: (found) => {
        if (running === this.running) this.show(found, true);
      } };
      const found = await this.host.ask(asked, options);
      if (running !== this.running) return;
      this.answer = found;
      await this.findBase(asked, found, running);
      if (running !== this.running) return;
      this.show(found);
      if (this.root.dataset.panel === "elimination") this.panels.elimination.load();
    } catch (problem) {
      if (running !== this.running) return;
      this.problem.textContent = problem.message;
      this.problem.hidden = false;
      this.sentence.textContent = "There is no answer to this question.";
      this.root.setAttribute("aria-busy", "false");
    }
  }

  // log Z of the model as it is, which P(evidence) is measured by.
  async findBase(asked, found, running) {
    if (ask.isEmpty(asked)) this.base = { engine: asked.engine, log_z: found.log_z };
    else if (!this.base || this.base.engine !== asked.engine) {
      const plain = { ...ask.question(), engine: asked.engine };
      const known = await this.host.ask(plain, { signal: running.signal, progress: () => {} });
      this.base = { engine: asked.engine, log_z: known.log_z };
    }
  }

  show(answer, partial = false) {
    const asked = this.question;
    this.list.show(answer, this.host.readOnly ? null : asked);
    if (this.panels.graph) this.panels.graph.show(answer);
    this.sentence.replaceChildren(...this.words(answer, partial));
    this.drawChips();
    if (partial) return;
    if (this.problem) this.problem.hidden = true;
    this.root.classList.remove("stale");
    this.root.setAttribute("aria-busy", "false");
  }

  words(answer, partial) {
    const parts = [el("b", { class: `badge ${answer.status.replace(" ", "-")}` }, answer.status),
      ` by ${answer.engine_name} (${answer.engine_words})`];
    if (answer.seconds !== null && answer.seconds !== undefined) {
      parts.push(` in ${Number(answer.seconds.toPrecision(2))} s`);
    }
    parts.push(`. ${answer.guarantee}`);
    if (answer.note) parts.push(` ${answer.note}.`);
    if (partial) parts.push(" Still improving…");
    else if (this.base && !ask.isEmpty(this.question)) parts.push(" ", this.evidenceWeight(answer));
    return parts;
  }

  evidenceWeight(answer) {
    const soft = Object.keys(this.question.likelihood).length > 0;
    const name = soft ? "Weight of the evidence" : "P(evidence)";
    if (answer.log_z === null || this.base.log_z === null) {
      return el("span", { class: "evidence" }, `${name} is not known to this engine.`);
    }
    const sign = answer.status === "exact" ? "=" : "≈";
    return el("span", { class: "evidence" },
      `${name} ${sign} ${exponential(answer.log_z - this.base.log_z)}.`);
  }

  drawChips() {
    const { evidence, likelihood, exclude } = this.question;
    const chip = (text, name) => el("button", { class: "chip", title: "Take it back", "aria-label": `take back ${text}`,
        onclick: () => this.change(ask.forget(this.question, name)) }, `${text} ×`);
    this.chips.replaceChildren(
      ...Object.entries(evidence).map(([name, state]) => chip(`${name} = ${state}`, name)),
      ...Object.entries(exclude).map(([name, states]) => chip(`${name} ≠ ${states.join(", ")}`, name)),
      ...Object.keys(likelihood).map((name) => chip(`${name}: soft`, name)));
  }
}
