// Elements and numbers: text is always set as text, so that no name can become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "value") node.value = value;
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function percent(p) {
  if (p === null || p === undefined) return "–";
  if (p === 0 || p === 1) return `${100 * p} %`;
  if (p < 0.0005) return "< 0.1 %";
  if (p > 0.9995) return "> 99.9 %";
  return `${(100 * p).toFixed(1)} %`;
}

export function small(x) {
  if (x === null || x === undefined) return "–";
  if (x === 0) return "0";
  return Math.abs(x) >= 1e-3 && Math.abs(x) < 1e4 ? String(Number(x.toPrecision(3)))
                                                   : x.toExponential(1);
}

// e^x as people read it, also where it is beyond the smallest number there is.
export function exponential(x) {
  if (x > Math.log(1e-4)) return String(Number(Math.exp(x).toPrecision(4)));
  const decimal = x / Math.LN10;
  const exponent = Math.floor(decimal);
  const raised = [...String(exponent)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");
  return `${(10 ** (decimal - exponent)).toFixed(2)} × 10${raised}`;
}

// Names often differ in their last letters only, so both ends are kept.
export function shorten(text, most = 14) {
  if (text.length <= most) return text;
  const tail = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - tail)}…${text.slice(-tail)}`;
}
