// The routes of the service, drawn from its OpenAPI description.

import { el } from "./dom.js";

const api = await (await fetch("/openapi.json")).json();
const schemas = api.components.schemas;
const named = (schema) => (schema.$ref ? schema.$ref.split("/").pop() : null);

function type(schema) {
  if (!schema) return "";
  if (named(schema)) return named(schema);
  if (schema.anyOf) return schema.anyOf.map(type).filter((t) => t !== "null").join(" or ");
  if (schema.enum) return schema.enum.map((x) => JSON.stringify(x)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${type(schema.items) || "anything"}`;
  if (schema.type === "object" && schema.additionalProperties) {
    return `object of ${type(schema.additionalProperties) || "anything"}`;
  }
  return schema.type || "anything";
}

function row(name, schema, required, words) {
  const usual = schema.default === undefined ? "" : `; usually ${JSON.stringify(schema.default)}`;
  return el("tr", {}, el("th", { scope: "row" }, name),
    el("td", {}, `${type(schema)}${required ? "" : `, optional${usual}`}`),
    el("td", {}, words || schema.description || ""));
}

function fields(schema) {
  const whole = named(schema || {}) ? schemas[named(schema)] : schema || {};
  const required = new Set(whole.required || []);
  return Object.entries(whole.properties || {}).map(([name, part]) =>
    row(name, part, required.has(name)));
}

function section(title, rows) {
  return rows.length ? [el("h4", {}, title), el("table", {}, rows)] : [];
}

const main = document.getElementById("docs");
main.prepend(el("h1", {}, `${api.info.title} ${api.info.version}`), el("p", {}, api.info.summary));
for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, route] of Object.entries(methods)) {
    const body = route.requestBody && Object.values(route.requestBody.content)[0].schema;
    main.append(el("details", { class: "route" },
      el("summary", {}, el("b", { class: "method" }, method.toUpperCase()), ` ${path}`,
        el("span", { class: "dim" }, ` ${route.description || ""}`)),
      section("In the address", (route.parameters || []).map((p) =>
        row(p.name, p.schema, p.required, p.description))),
      section("Body", fields(body)),
      section("Answers", Object.entries(route.responses).map(([code, answer]) => {
        const content = answer.content && Object.values(answer.content)[0].schema;
        return el("tr", {}, el("th", { scope: "row" }, code), el("td", {}, type(content)),
          el("td", {}, answer.description));
      }))));
  }
}
main.append(el("h2", {}, "Objects"), ...Object.entries(schemas).map(([name, schema]) =>
  el("details", { class: "route", id: name }, el("summary", {}, el("b", {}, name),
    el("span", { class: "dim" }, ` ${schema.description || ""}`)),
  section("Fields", fields(schema)))));
