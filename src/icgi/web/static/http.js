// The service as a host of the viewer: questions over HTTP, progress as server-sent events.

const QUICK = 1.5; // seconds that the first request waits for the answer

async function call(path, options = {}) {
  let found;
  try {
    found = await fetch(path, { credentials: "same-origin", ...options });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Error("The service does not answer; is it still running?");
  }
  const body = found.status === 204 ? null : await found.json().catch(() => ({}));
  if (found.ok) return body;
  if (found.status === 429) {
    throw new Error(`The service is busy; try again in ${found.headers.get("Retry-After") || "some"} s.`);
  }
  const detail = body.detail || found.statusText;
  throw new Error(typeof detail === "string" ? detail : detail.map((d) => d.msg).join("; "));
}

function post(path, body, signal) {
  return call(path, { method: "POST", signal, body: JSON.stringify(body),
    headers: { "content-type": "application/json" } });
}

// The job once it has ended; its better and better answers go to `progress` meanwhile.
function followed(job, { signal, progress }) {
  return new Promise((resolve, reject) => {
    const events = new EventSource(`/jobs/${job.id}/events`);
    const leave = () => {
      events.close();
      call(`/jobs/${job.id}`, { method: "DELETE" }).catch(() => {});
      reject(new DOMException("another question was asked", "AbortError"));
    };
    if (signal) signal.addEventListener("abort", leave, { once: true });
    events.addEventListener("job", (event) => {
      const now = JSON.parse(event.data);
      if (now.progress && progress) progress(now.progress);
      if (!["done", "failed", "cancelled"].includes(now.state)) return;
      events.close();
      if (signal) signal.removeEventListener("abort", leave);
      resolve(now);
    });
    events.onerror = () => {
      if (events.readyState === EventSource.CLOSED) {
        reject(new Error("The connection to the service was lost; ask again."));
      }
    };
  });
}

async function answered(path, body, options = {}) {
  let job = await post(`${path}?wait=${QUICK}`, body, options.signal);
  if (job.state === "queued" || job.state === "running") job = await followed(job, options);
  if (job.result) return job.result;
  throw new Error(job.error ? job.error.message : "This question was cancelled.");
}

export async function httpHost(ident) {
  const [model, engines] = await Promise.all([call(`/models/${ident}`), call("/engines")]);
  const asked = (question) => ({ ...question, model: ident });
  return {
    model,
    engines,
    ask: (question, options) => answered("/marginals", asked(question), options),
    joint: (question, variables) => answered("/joint", { ...asked(question), variables }),
    mpe: (question) => answered("/mpe", asked(question)),
    graph: (around) => call(`/models/${ident}/graph` +
      (around === null ? "" : `?around=${encodeURIComponent(around)}`)),
    eliminate: (question, rank) => post(`/models/${ident}/elimination?rank=${rank}`, asked(question)),
  };
}

export const models = () => call("/models");
export const addModel = (name, format, text) =>
  call(`/models?name=${encodeURIComponent(name)}&format=${format}`, { method: "POST", body: text,
    headers: { "content-type": "application/octet-stream" } });
