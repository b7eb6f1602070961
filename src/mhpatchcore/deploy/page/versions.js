// The life of a model: what was done to it, its earlier versions, and the way back.

import { counted, day, h, percent } from "./dom.js";
import { propose } from "./propose.js";

const DEEDS = {
  fit: "Fitted",
  update: "Learnt",
  calibrate: "Calibrated",
  merge: "Merged",
  undo: "Taken back",
  learn: "Learnt",
  teach: "Taught",
  recalibrate: "Recalibrated",
  threshold: "Another threshold",
  found: "Put there by hand",
};

export function history(events) {
  const told = (event) => {
    const from = event.source ? ` from ${event.source}` : "";
    if (event.what === "calibrate")
      return `at ${percent(event.false_alarm)}${event.images ? `, with ${counted(event.images, "part")}${from}` : ""}`;
    return `${counted(event.images, "image")}${from}${event.what === "fit" ? "" : `, ${event.total} in all`}`;
  };
  return h(
    "section",
    { class: "card" },
    h("h3", {}, "History"),
    h(
      "ol",
      { class: "timeline" },
      [...events].reverse().map((one) =>
        h(
          "li",
          {},
          h("b", {}, DEEDS[one.what] ?? one.what),
          ` ${told(one)}`,
          h("span", { class: "muted line" }, `${day(one.when)}${one.who ? `, ${one.who}` : ""}`),
          one.note && h("q", {}, one.note),
        ),
      ),
    ),
  );
}

// `kept` are the versions and changes of a model; `after` is called once another one is in use. Going back is a change
// like any other: it is shown on every labelled part first
export function versions(kept, after) {
  const back = async (version) => {
    if (await propose(`Go back to version ${version}`, { action: "undo", version })) after();
  };
  const row = (one) =>
    h(
      "li",
      { class: one.in_use ? "in-use" : "" },
      h(
        "div",
        {},
        h("b", {}, `Version ${one.version}`),
        " ",
        h("code", { title: one.sha256 }, one.sha256.slice(0, 8)),
        " ",
        one.in_use
          ? h("span", { class: "tag good" }, "in use")
          : one.until && h("span", { class: "muted" }, `until ${day(one.until)}`),
        h(
          "span",
          { class: "muted line" },
          `${counted(one.images, "image")}, ${percent(one.false_alarm)} · ${(DEEDS[one.what] ?? one.what).toLowerCase()} ${day(one.when)}${one.who ? `, ${one.who}` : ""}`,
        ),
      ),
      !one.in_use &&
        h(
          "button",
          {
            type: "button",
            class: "small",
            "aria-label": `Go back to version ${one.version}`,
            onclick: () => back(one.version),
          },
          "Go back",
        ),
    );
  const undone = kept.changes.filter((one) => one.what === "undo" && one.state === "done");
  return h(
    "section",
    { class: "card" },
    h("h3", {}, "Versions"),
    kept.versions.length === 1 &&
      h(
        "p",
        { class: "muted" },
        "Once the model changes, its earlier versions are listed here, each one a click away.",
      ),
    h("ul", { class: "versions" }, kept.versions.map(row)),
    undone.length > 0 &&
      h(
        "p",
        { class: "muted" },
        `Taken back ${undone.length === 1 ? "once" : `${undone.length} times`}, last ${day(undone[0].at)}${undone[0].who ? ` by ${undone[0].who}` : ""}.`,
      ),
  );
}
