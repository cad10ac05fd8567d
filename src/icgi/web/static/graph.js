// The graph of a model around the selected variable, or as a whole; places come from outside.

import { el, shorten, svg } from "./dom.js";

const SIZE = 100; // of the drawing, in its own units

export function place(node) {
  return [6 + (SIZE - 12) * node.x, 6 + (SIZE - 12) * node.y];
}

// Lines, then discs with names. `look(name)` gives {class, shade, title} of a node.
export function drawing(nodes, edges, look, choose, label) {
  const wide = nodes.length > 25;
  const radius = wide ? Math.max(1, 14 / Math.sqrt(nodes.length)) : 3.2;
  const lines = edges.map(([a, b, kind]) => {
    const [x1, y1] = place(nodes[a]);
    const [x2, y2] = place(nodes[b]);
    return svg("line", { x1, y1, x2, y2, class: `edge ${kind || ""}` });
  });
  const discs = nodes.map((node) => {
    const [x, y] = place(node);
    const seen = look(node.variable);
    const disc = svg("circle", { cx: x, cy: y, r: radius });
    disc.style.setProperty("--shade", String(seen.shade));
    const parts = [svg("title", {}, seen.title || node.variable), disc];
    if (nodes.length <= 60) {
      parts.push(svg("text", { x, y: y + radius + (wide ? 2.4 : 3.4), class: wide ? "name small" : "name" },
        shorten(node.variable, wide ? 8 : 14)));
    }
    if (node.hidden) parts.push(svg("text", { x: x + radius, y: y - radius + 1, class: "hidden" }, "…"));
    const act = () => choose(node.variable);
    return svg("g", {
      class: `node ${seen.class || ""}`, ...(choose ? {
        tabindex: "0", role: "button", "aria-label": seen.title || node.variable, onclick: act,
        onkeydown: (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          act();
        },
      } : {}),
    }, parts);
  });
  return svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "group", "aria-label": label },
    lines, discs);
}

export class GraphPanel {
  constructor(host, select) {
    this.host = host;
    this.select = select;
    this.rows = new Map();
    this.near = el("button", { onclick: () => this.toggle() }, "Around the selected");
    this.words = el("p", { class: "dim" });
    this.body = el("div", { class: "drawing" });
    this.element = el("section", { class: "panel graph", "aria-label": "Graph" },
      el("div", { class: "tools" }, this.near), this.body, this.words);
    this.around = host.model.variables.length > 60;
    this.press();
  }

  // Nothing can be drawn around a variable before one is selected.
  press() {
    this.near.disabled = !this.selected;
    this.near.title = this.selected ? "" : "Select a variable first";
    this.near.setAttribute("aria-pressed", String(this.around && Boolean(this.selected)));
  }

  toggle() {
    this.around = !this.around;
    this.press();
    this.load();
  }

  async load() {
    const around = this.around && this.selected ? this.selected : null;
    const turn = (this.turn = (this.turn || 0) + 1);
    try {
      const found = await this.host.graph(around);
      if (turn !== this.turn) return;
      this.found = found;
      this.draw();
    } catch (problem) {
      this.words.textContent = problem.message;
    }
  }

  show(answer) {
    this.rows = new Map(answer.marginals.map((row) => [row.variable, row]));
    if (this.found) this.draw();
  }

  choose(name) {
    this.selected = name;
    this.press();
    if (this.around || !this.found) this.load();
    else this.draw();
  }

  draw() {
    const { nodes, edges, complete } = this.found;
    const focused = this.body.contains(document.activeElement);
    const look = (name) => {
      const row = this.rows.get(name);
      const most = row ? Math.log2(Object.keys(row.probabilities).length) : 0;
      const kind = name === this.selected ? "selected " : "";
      const words = row ? (row.observed ? "observed" : `${row.entropy.toFixed(2)} bits`) : "";
      return {
        class: kind + (row && row.observed ? "observed" : ""),
        shade: row && most ? 0.15 + 0.85 * (row.entropy / most) : 0.15,
        title: `${name}: ${words}`,
      };
    };
    this.body.replaceChildren(drawing(nodes, edges, look, this.select, "Graph of the model"));
    if (focused) {
      const node = this.body.querySelector(".node.selected");
      if (node) node.focus();
    }
    const total = this.host.model.variables.length;
    this.words.textContent = (complete ? "" : `${nodes.length} of ${total} variables. `) +
      "Darker: less certain. Two variables are joined where they share a factor.";
  }
}
