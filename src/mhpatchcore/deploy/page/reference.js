// Every request of the service, as its OpenAPI document describes them.

import { json } from "./api.js";
import { $, h } from "./dom.js";

function list(rows) {
  return h("div", {}, rows.map((row) => h("div", { class: "row" }, row.map((cell) => h("div", {}, cell)))));
}

function section(title, content) {
  return content && h("section", {}, h("h3", {}, title), content);
}

const typeOf = ({ type, enum: values, anyOf, items, $ref }) =>
  values?.join(" | ") ??
  anyOf?.map(typeOf).join(" | ") ??
  (items ? `list of ${typeOf(items)}` : ($ref?.split("/").pop() ?? type ?? "anything"));

function bodies(content) {
  return Object.entries(content).map(([type, { schema, example }]) =>
    schema.format === "binary"
      ? h("div", {}, h("code", {}, type), " a file")
      : h("div", {}, h("code", {}, type), h("pre", {}, JSON.stringify(example ?? schema, null, 1))),
  );
}

function answers(document, responses) {
  return Object.entries(responses).map(([status, { description, content }]) => {
    const name = typeOf(Object.values(content ?? {})[0]?.schema ?? {});
    const example = document.components.schemas[name]?.example;
    return [status, h("div", {}, description, " ", h("code", {}, name), example ? h("pre", {}, JSON.stringify(example, null, 1)) : null)];
  });
}

function request(document, path, method, { description = "", parameters, requestBody, responses }) {
  const [first, ...further] = description.split("\n\n");
  const rows = parameters?.map((one) => [
    h("code", {}, one.name),
    h("span", {}, typeOf(one.schema), one.required ? ", required" : ""),
    one.description ?? "",
  ]);
  return h(
    "details",
    { class: "card request" },
    h("summary", {}, h("span", { class: "method" }, method.toUpperCase()), h("code", {}, path), h("span", {}, first)),
    further.map((one) => h("p", {}, one)),
    section("Parameters", rows && list(rows)),
    section("Body", requestBody && h("div", {}, bodies(requestBody.content))),
    section("Answers", list(answers(document, responses))),
  );
}

try {
  const described = await json("/openapi.json");
  const every = Object.entries(described.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, facts]) => request(described, path, method, facts)),
  );
  $("requests").replaceChildren(...every);
} catch (error) {
  $("requests").textContent = error.message;
}
