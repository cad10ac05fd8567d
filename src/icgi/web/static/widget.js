// A notebook as a host of the viewer: questions are messages to Python, which answers them.

import { Viewer } from "./viewer.js";

export function render({ model, el: root }) {
  let next = 0;
  const waiting = new Map();
  const receive = (message) => {
    const asked = waiting.get(message && message.id);
    if (!asked) return;
    if (message.progress) {
      if (asked.progress) asked.progress(message.progress);
      return;
    }
    waiting.delete(message.id);
    if (message.error) asked.reject(new Error(message.error));
    else asked.resolve(message.result);
  };
  model.on("msg:custom", receive);
  const call = (what, given, options = {}) => new Promise((resolve, reject) => {
    const id = next;
    next += 1;
    waiting.set(id, { resolve, reject, progress: options.progress });
    model.send({ id, what, ...given });
  });
  const host = {
    model: model.get("facts"),
    engines: model.get("engines"),
    question: model.get("question"),
    ask: (question, options) => call("marginals", { question }, options),
    joint: (question, variables) => call("joint", { question, variables }),
    mpe: (question) => call("mpe", { question }),
    graph: (around) => call("graph", { around }),
    eliminate: (question, rank) => call("elimination", { question, rank }),
    changed: (question) => {
      model.set("question", question);
      model.save_changes();
    },
  };
  new Viewer(root, host);
  return () => model.off("msg:custom", receive);
}

export default { render };
