// The variables with their bars, bands and trust marks; bars are clicked, dragged and excluded.

import { el, percent, small } from "./dom.js";

const AT_ONCE = 100; // variables shown before “more”
const MANY = 8; // states shown of a variable that has more
const NAMED = 4; // states of a set that are named
const DRAGGED = 6; // pixels that make a click a drag
const STEP = 0.05; // of a probability, by an arrow key
const MARKS = {
  exact: ["✓", "exact up to rounding"],
  good: ["●", "small estimated error"],
  doubtful: ["?", "large error: do not trust it"],
  unknown: ["○", "its error is not known"],
  observed: ["◆", "observed"],
};

export class VariableList {
  // actions: {select, observe, exclude, weigh}, none of which a read-only list has
  // `given` names the order of the model's variables.
  constructor(model, actions, by = "uncertainty", given = "model order") {
    this.model = model;
    this.actions = actions;
    this.states = new Map(model.variables.map((v) => [v.name, v.states]));
    this.cards = new Map();
    this.rows = new Map();
    this.limit = AT_ONCE;
    this.order = model.variables.map((v) => v.name);
    this.search = el("input", {
      type: "search", placeholder: "Search variables", "aria-label": "Search variables",
      oninput: () => this.arrange(),
    });
    this.sort = el("select", { "aria-label": "Sort by", onchange: () => this.arrange(true) },
      ["uncertainty", "error", "name", given].map((each) => el("option", {}, each)));
    this.sort.value = by;
    this.given = given;
    this.again = el("button", { class: "again", hidden: true, title: "The order stays while you click",
      onclick: () => this.arrange(true) }, "Sort again");
    this.body = el("div", { class: "variables" });
    this.more = el("button", { class: "more", onclick: () => {
      this.limit += AT_ONCE;
      this.arrange();
    } });
    this.element = el("section", { class: "list", "aria-label": "Variables" },
      el("div", { class: "tools" }, this.search, this.sort, this.again), this.legend(), this.body, this.more);
  }

  legend() {
    const marks = Object.entries(MARKS).map(([kind, [mark, words]]) =>
      el("span", { class: "key" }, el("b", { class: `mark ${kind}`, "aria-hidden": "true" }, mark), ` ${words}`));
    return el("details", { class: "legend" }, el("summary", {}, "Legend"), el("p", {}, marks),
      el("p", {}, "Bar: probability. Outlined strip: ",
        this.level = el("span", {}, "90 %"), " ", this.whose = el("span"), "."),
      this.actions ? el("p", {}, "Click a state to observe it, again to retract. Drag its bar, or " +
        "use ← →, for soft evidence; ⊘ or Delete excludes it.") : null);
  }

  show(answer, asked) {
    this.rows = new Map(answer.marginals.map((row) => [row.variable, row]));
    this.level.textContent = `${Number((100 * answer.level).toPrecision(4))} %`;
    this.whose.textContent = answer.calibrated ? "calibrated band" : "band by the engine’s own estimate";
    this.asked = asked;
    const busy = this.body.contains(document.activeElement);
    this.arrange(!busy);
    const now = busy ? this.sortedNames() : this.sorted;
    this.again.hidden = now.every((name, k) => name === this.sorted[k]);
    for (const card of this.cards.values()) card.update();
  }

  select(name) {
    this.selected = name;
    for (const card of this.cards.values()) card.mark();
  }

  // The cards that are wanted, in order; existing ones are kept, so that nothing loses its focus.
  arrange(anew = false) {
    if (anew || !this.sorted) {
      this.sorted = this.sortedNames();
      this.again.hidden = true;
    }
    const words = this.search.value.trim().toLowerCase();
    const found = this.sorted.filter((name) => name.toLowerCase().includes(words));
    const shown = found.slice(0, this.limit);
    shown.forEach((name, k) => {
      if (!this.cards.has(name)) this.cards.set(name, new Card(this, name));
      const node = this.cards.get(name).element;
      if (this.body.children[k] !== node) this.body.insertBefore(node, this.body.children[k] || null);
    });
    while (this.body.children.length > shown.length) this.body.lastChild.remove();
    this.more.hidden = found.length <= shown.length;
    this.more.textContent = `${found.length - shown.length} more`;
  }

  sortedNames() {
    const given = this.given;
    const row = (name) => this.rows.get(name) || {};
    const number = new Map(this.order.map((name, i) => [name, i]));
    const last = (name) => (row(name).observed ? 1 : 0);
    const by = {
      uncertainty: (a, b) => last(a) - last(b) || (row(b).entropy || 0) - (row(a).entropy || 0),
      error: (a, b) => last(a) - last(b) || (row(b).error || 0) - (row(a).error || 0),
      name: (a, b) => a.localeCompare(b, undefined, { numeric: true }),
      [given]: () => 0,
    }[this.sort.value];
    return [...this.order].sort((a, b) => by(a, b) || number.get(a) - number.get(b));
  }
}

class Card {
  constructor(list, name) {
    this.list = list;
    this.name = name;
    this.states = list.states.get(name);
    this.all = this.states.length <= MANY;
    this.markNode = el("span", { class: "mark", role: "img" });
    this.bits = el("span", { class: "bits" });
    const title = list.actions
      ? el("button", { class: "name", title: "Show its surroundings",
          onclick: () => list.actions.select(name) }, name)
      : el("span", { class: "name" }, name);
    this.body = el("div", { class: "states" });
    this.element = el("article", { class: "variable", "aria-label": name },
      el("header", {}, title, this.markNode, this.bits), this.body);
    this.bars = new Map();
    this.update();
    this.mark();
  }

  mark() {
    this.element.classList.toggle("selected", this.list.selected === this.name);
  }

  update() {
    const row = this.list.rows.get(this.name);
    if (!row) return;
    const [mark, words] = MARKS[row.trust] || MARKS.unknown;
    const error = row.error === null || row.error === undefined || row.observed ? ""
      : `; standard error at most ${small(row.error)}`;
    this.markNode.className = `mark ${row.trust}`;
    this.markNode.textContent = mark;
    this.markNode.title = words + error;
    this.markNode.setAttribute("aria-label", words + error);
    this.bits.textContent = row.observed ? "observed"
      : `${row.entropy.toFixed(2)} bits${row.set ? ` · set: ${this.named(row.set)}` : ""}`;
    this.bits.title = row.observed || !row.set ? "" : row.set.join(", ");
    const wanted = this.shown(row);
    wanted.forEach((state, k) => {
      if (!this.bars.has(state)) this.bars.set(state, new Bar(this, state));
      const bar = this.bars.get(state);
      if (this.body.children[k] !== bar.element) {
        this.body.insertBefore(bar.element, this.body.children[k] || null);
      }
      bar.update(row);
    });
    while (this.body.children.length > wanted.length) this.body.lastChild.remove();
    if (!this.all) {
      this.body.append(el("button", { class: "more", onclick: () => {
        this.all = true;
        this.update();
      } }, `all ${this.states.length} states`));
    }
  }

  named(set) {
    return set.length > NAMED ? `${set.length} of ${this.states.length} states` : set.join(", ");
  }

  // Of many states the likeliest, and those that something is known about.
  shown(row) {
    if (this.all) return this.states;
    const p = (state) => row.probabilities[state] || 0;
    const best = new Set([...this.states].sort((a, b) => p(b) - p(a)).slice(0, MANY));
    const asked = this.list.asked;
    for (const state of (asked && asked.exclude[this.name]) || []) best.add(state);
    return this.states.filter((state) => best.has(state));
  }
}

class Bar {
  constructor(card, state) {
    this.card = card;
    this.state = state;
    this.fill = el("span", { class: "fill" });
    this.band = el("span", { class: "band" });
    this.target = el("span", { class: "target", hidden: true });
    this.track = el("span", { class: "track" }, this.fill, this.band, this.target);
    this.number = el("span", { class: "p" });
    const inside = [el("span", { class: "label", title: state }, state), this.track, this.number];
    const actions = card.list.actions;
    this.main = actions ? el("button", { class: "bar", type: "button" }, inside)
                        : el("div", { class: "bar" }, inside);
    this.ban = actions
      ? el("button", { class: "ban", type: "button", title: "Exclude this state",
          onclick: () => actions.exclude(card.name, state) }, "⊘")
      : null;
    this.element = el("div", { class: "state" }, this.main, this.ban);
    if (actions) this.listen(actions);
  }

  listen(actions) {
    const { name } = this.card;
    let from = null;
    let dragged = false;
    const share = (event) => {
      const box = this.track.getBoundingClientRect();
      return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    };
    this.main.addEventListener("pointerdown", (event) => {
      if (event.button === 0) from = event.clientX;
      dragged = false;
    });
    this.main.addEventListener("pointermove", (event) => {
      if (from === null || (!dragged && Math.abs(event.clientX - from) < DRAGGED)) return;
      if (!dragged) this.main.setPointerCapture(event.pointerId);
      dragged = true;
      this.aim(share(event));
    });
    this.main.addEventListener("pointerup", (event) => {
      if (dragged) actions.weigh(name, this.state, share(event));
      from = null;
      this.aim(null);
    });
    this.main.addEventListener("pointercancel", () => {
      from = null;
      this.aim(null);
    });
    this.main.addEventListener("click", () => {
      if (!dragged) actions.observe(name, this.state);
      dragged = false;
    });
    this.main.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
      if (step) this.nudge(step, actions);
      else if (event.key === "Delete" || event.key === "Backspace") {
        actions.exclude(name, this.state);
      } else return;
      event.preventDefault();
    });
  }

  // Arrow keys add up until the hand rests.
  nudge(step, actions) {
    const start = this.aimed === undefined ? this.p : this.aimed;
    this.aimed = Math.min(1, Math.max(0, start + step));
    this.aim(this.aimed);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      actions.weigh(this.card.name, this.state, this.aimed);
      this.aimed = undefined;
      this.aim(null);
    }, 400);
  }

  aim(share) {
    this.target.hidden = share === null;
    if (share !== null) {
      this.target.style.left = `${100 * share}%`;
      this.number.textContent = percent(share);
    } else if (this.p !== undefined) this.number.textContent = percent(this.p);
  }

  update(row) {
    const { name, list } = this.card;
    this.p = row.probabilities[this.state];
    this.fill.style.width = `${100 * (this.p || 0)}%`;
    this.number.textContent = percent(this.p);
    const low = row.low && row.low[this.state];
    const high = row.high && row.high[this.state];
    this.band.hidden = low === undefined || low === null;
    if (!this.band.hidden) {
      this.band.style.left = `${100 * low}%`;
      this.band.style.width = `${100 * (high - low)}%`;
      this.band.title = `${percent(low)} to ${percent(high)}`;
    }
    const asked = list.asked;
    const observed = Boolean(asked) && asked.evidence[name] === this.state;
    const excluded = Boolean(asked) && (asked.exclude[name] || []).includes(this.state);
    const soft = Boolean(asked) && Boolean(asked.likelihood[name]);
    this.element.classList.toggle("observed", observed);
    this.element.classList.toggle("excluded", excluded);
    this.element.classList.toggle("soft", soft);
    if (!list.actions) return;
    this.main.setAttribute("aria-pressed", String(observed));
    this.main.setAttribute("aria-label",
      `${name} = ${this.state}, ${percent(this.p)}${observed ? ", observed" : ""}` +
      `${excluded ? ", excluded" : ""}${soft ? ", with soft evidence" : ""}`);
    this.ban.setAttribute("aria-pressed", String(excluded));
    this.ban.setAttribute("aria-label", `exclude ${name} = ${this.state}`);
  }
}
