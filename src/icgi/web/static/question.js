// What is known: observed states, soft evidence, excluded states. Values that are never changed.

function dictionary(entries) {
  const made = Object.create(null); // a variable may be called __proto__
  for (const [key, value] of entries) made[key] = value;
  return made;
}

function without(object, name) {
  return dictionary(Object.entries(object).filter(([key]) => key !== name));
}

function withEntry(object, name, value) {
  return dictionary([...Object.entries(without(object, name)), [name, value]]);
}

export function question(given = {}) {
  return {
    evidence: dictionary(Object.entries(given.evidence || {})),
    likelihood: dictionary(Object.entries(given.likelihood || {})),
    exclude: dictionary(Object.entries(given.exclude || {})),
    engine: given.engine || "auto",
  };
}

export function isEmpty(asked) {
  return [asked.evidence, asked.likelihood, asked.exclude].every((x) => !Object.keys(x).length);
}

export function forget(asked, name) {
  return {
    ...asked,
    evidence: without(asked.evidence, name),
    likelihood: without(asked.likelihood, name),
    exclude: without(asked.exclude, name),
  };
}

// Observe a state; observed already, it is retracted.
export function observe(asked, name, state) {
  const cleared = forget(asked, name);
  if (asked.evidence[name] === state) return cleared;
  return { ...cleared, evidence: withEntry(cleared.evidence, name, state) };
}

// Exclude a state; excluded already, it is possible again.
export function exclude(asked, name, state, states) {
  const known = asked.exclude[name] || [];
  const left = known.includes(state) ? known.filter((x) => x !== state) : [...known, state];
  const cleared = { ...asked, evidence: without(asked.evidence, name) };
  if (!left.length) return { ...cleared, exclude: without(asked.exclude, name) };
  if (left.length >= states.length) return asked;
  return { ...cleared, exclude: withEntry(asked.exclude, name, left) };
}

// Soft evidence that moves a state's probability to `target`, the others in proportion:
// weights ∝ (wanted / present) × present weights, the largest one being 1.
export function weigh(asked, name, state, target, states, present) {
  const at = states.indexOf(state);
  const p = present[at];
  if (!(p > 0) || !(p < 1)) return asked;
  const wanted = Math.min(0.999, Math.max(0.001, target));
  const old = asked.likelihood[name] || states.map(() => 1);
  const raw = states.map((_, x) => old[x] * (x === at ? wanted / p : (1 - wanted) / (1 - p)));
  const top = Math.max(...raw);
  const weights = raw.map((w) => Number((w / top).toPrecision(6)));
  const cleared = { ...asked, evidence: without(asked.evidence, name) };
  return { ...cleared, likelihood: withEntry(asked.likelihood, name, weights) };
}

// As the part of an address after #, and back.
export function toAddress(asked) {
  const words = new URLSearchParams();
  for (const [name, state] of Object.entries(asked.evidence)) words.append(`is.${name}`, state);
  for (const [name, weights] of Object.entries(asked.likelihood)) {
    words.append(`like.${name}`, weights.join(" "));
  }
  for (const [name, states] of Object.entries(asked.exclude)) {
    for (const state of states) words.append(`not.${name}`, state);
  }
  if (asked.engine !== "auto") words.append("engine", asked.engine);
  return words;
}

export function fromAddress(text) {
  const made = question();
  for (const [key, value] of new URLSearchParams(text.replace(/^#/, ""))) {
    const [kind, ...rest] = key.split(".");
    const name = rest.join(".");
    if (kind === "is") made.evidence[name] = value;
    if (kind === "not") made.exclude[name] = [...(made.exclude[name] || []), value];
    if (kind === "like") {
      const weights = value.split(" ").map(Number);
      if (weights.every((w) => w >= 0 && Number.isFinite(w))) made.likelihood[name] = weights;
    }
    if (key === "engine") made.engine = value;
  }
  return made;
}
