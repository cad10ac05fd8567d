// The report as a host of the viewer: one answer that is in the page, to be read and searched.

import { Viewer } from "./viewer.js";

const given = JSON.parse(document.getElementById("answer").textContent);
for (const root of document.querySelectorAll("[data-answer]")) {
  const answer = given[Number(root.dataset.answer)];
  const variables = answer.marginals.map((row) =>
    ({ name: row.variable, states: Object.keys(row.probabilities) }));
  const host = { readOnly: true, answer, model: { name: "", variables } };
  if (given.length > 1) host.sort = host.order = "difference"; // side by side, as in the page
  new Viewer(root, host);
}
