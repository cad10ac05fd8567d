// An elimination, step by step: the graph with fill-in, the frontier as a train, and its cuts.

import { el, shorten, small, svg } from "./dom.js";
import { drawing } from "./graph.js";

export class EliminationPanel {
  constructor(host, asked) {
    this.host = host;
    this.asked = asked;
    this.at = 0;
    this.rank = el("select", { "aria-label": "Rank", onchange: () => this.load() },
      [1, 2, 4, 8, 16].map((r) => el("option", { value: r, selected: r === 2 }, `rank ${r}`)));
    this.slider = el("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Step",
      oninput: () => this.go(Number(this.slider.value)) });
    const button = (text, label, act) => el("button", { "aria-label": label, onclick: act }, text);
    this.words = el("p", { "aria-live": "polite" });
    this.picture = el("div", { class: "drawing" });
    const key = el("p", { class: "dim" }, "Red: summed out now; orange: the frontier; faded: " +
      "summed out before; dashed: edges that were filled in.");
    this.train = el("div", { class: "train" });
    this.cuts = el("div", { class: "cuts" });
    this.result = el("p", { class: "dim" });
    this.element = el("section", { class: "panel elimination", "aria-label": "Elimination" },
      el("div", { class: "tools" }, this.rank,
        button("‹", "Previous step", () => this.go(this.at - 1)), this.slider,
        button("›", "Next step", () => this.go(this.at + 1))),
      this.words, this.picture, key, this.train, this.cuts, this.result);
  }

  async load() {
    this.element.classList.add("stale");
    if (!this.trace) this.words.textContent = "Eliminating…";
    try {
      this.trace = await this.host.eliminate(this.asked(), Number(this.rank.value));
      this.slider.max = this.trace.steps.length;
      this.go(Math.min(this.at, this.trace.steps.length));
    } catch (problem) {
      this.trace = null;
      this.words.textContent = problem.message;
      for (const part of [this.picture, this.train, this.cuts, this.result]) part.replaceChildren();
    }
    this.element.classList.remove("stale");
  }

  go(step) {
    if (!this.trace) return;
    this.at = Math.min(this.trace.steps.length, Math.max(0, step));
    this.slider.value = this.at;
    this.draw();
  }

  draw() {
    const { nodes, edges, steps } = this.trace;
    const done = steps.slice(0, this.at);
    const now = done[done.length - 1];
    const gone = new Set(done.map((step) => step.variable));
    const frontier = new Set(now ? now.train : []);
    const lines = [
      ...edges.map(([a, b]) => [a, b, gone.has(a) || gone.has(b) ? "gone" : ""]),
      ...done.flatMap((step) => step.fill.map(([a, b]) =>
        [a, b, gone.has(a) || gone.has(b) ? "fill gone" : "fill"])),
    ];
    const number = new Map(nodes.map((node, k) => [node.variable, k]));
    const look = (name) => {
      const k = number.get(name);
      const kind = now && now.variable === k ? "now" : gone.has(k) ? "gone"
        : frontier.has(k) ? "frontier" : "";
      return { class: kind, shade: kind ? 1 : 0.25, title: name };
    };
    this.picture.replaceChildren(drawing(nodes, lines, look, null, "Graph during elimination"));
    this.words.textContent = this.sentence(now);
    this.train.replaceChildren(this.drawTrain(now));
    this.cuts.replaceChildren(this.drawCuts());
    this.result.textContent = this.outcome();
  }

  sentence(step) {
    const { nodes, steps, left_out: out } = this.trace;
    if (!step) {
      const rest = out ? ` ${out} other variables are not connected to these, or known.` : "";
      return `${steps.length} variables will be summed out one after the other.${rest}`;
    }
    const name = (k) => nodes[k].variable;
    const near = step.neighbours.map(name).join(", ");
    const fill = step.fill.length
      ? ` They were not all joined: ${step.fill.length} new ${step.fill.length > 1 ? "edges" : "edge"}.`
      : "";
    return `Step ${this.at} of ${steps.length}: ${name(step.variable)} is summed out` +
      (near ? `; what is left depends on ${near}.${fill}` : ", the last of all.");
  }

  // Sites in their order; a bond is as thick as the logarithm of its size.
  drawTrain(step) {
    const sites = step ? step.train : [];
    if (!sites.length) return el("p", { class: "dim" }, "The frontier is empty.");
    const touched = new Set(step.touched);
    const wide = 74;
    const parts = sites.flatMap((k, q) => {
      const x = 8 + q * wide;
      const bond = step.bonds[q];
      return [
        ...(q < sites.length - 1 ? [
          svg("line", { x1: x + 46, y1: 26, x2: x + wide, y2: 26, class: "bond",
            "stroke-width": 1 + 2 * Math.log2(bond) }),
          svg("text", { x: x + 60, y: 14, class: "bond" }, String(bond)),
        ] : []),
        svg("rect", { x, y: 12, width: 46, height: 28, rx: 6,
          class: touched.has(k) ? "site touched" : "site" }),
        svg("line", { x1: x + 23, y1: 40, x2: x + 23, y2: 50, class: "leg" }),
        svg("text", { x: x + 23, y: 62, class: "name" }, shorten(this.trace.nodes[k].variable, 10)),
      ];
    });
    const width = 16 + sites.length * wide;
    const picture = svg("svg", { viewBox: `0 0 ${width} 70`, role: "img",
      "aria-label": `Train of ${sites.length} sites with bonds ${step.bonds.join(", ")}` }, parts);
    picture.style.width = `${width}px`;
    return el("div", {}, el("h3", {}, "The frontier, a train of tensors"), picture,
      el("p", { class: "dim" }, `Numbers are bonds, at most ${this.trace.rank}; filled sites were ` +
        "touched by this step."));
  }

  // One bar per step, by the logarithm of what was discarded at its worst cut.
  drawCuts() {
    const { steps } = this.trace;
    const height = (x) => (x > 1e-12 ? 40 * (1 + Math.log10(x) / 12) : 0);
    const bars = steps.flatMap((step, k) => [["discarded", 1], ["discarded_back", 5]].map(([key, dx]) =>
      svg("rect", { x: 10 * k + dx, y: 44 - height(step[key]), width: 4, height: height(step[key]) + 1,
        class: `${key} ${k === this.at - 1 ? "now" : ""}` }, svg("title", {},
        `step ${k + 1}: ${small(step[key])}`))));
    const title = el("h3", {}, "What the cuts discarded");
    if (steps.every((step) => Math.max(step.discarded, step.discarded_back) < 1e-12)) {
      return el("div", {}, title, el("p", { class: "dim" },
        "Nothing: at this rank the trains hold all tables as they are."));
    }
    const now = steps[this.at - 1];
    const picture = svg("svg", { viewBox: `0 0 ${10 * steps.length + 2} 46`, role: "img",
      "aria-label": "Share of weight discarded in every step" }, bars);
    picture.style.width = `${Math.min(100, 3 * steps.length + 10)}%`;
    return el("div", {}, title, picture, el("p", { class: "dim" },
      now ? `This step: ${small(now.discarded)} of the weight at its worst bond, ` +
        `${small(now.discarded_back)} on the way back. ` : "",
      "Bars are logarithms, from 10⁻¹² to 1."));
  }

  outcome() {
    const { rank, error, log_z: z, exact_log_z: exact } = this.trace;
    if (error === null) return `log Z at rank ${rank}: ${small(z)}.`;
    return `At rank ${rank}: log Z = ${z === null ? "not found" : z.toFixed(4)}, exactly ` +
      `${exact.toFixed(4)}; largest error of a probability ${small(error)}.`;
  }
}
