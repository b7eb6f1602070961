// The life of a model: what was done to it, its earlier versions, and the way back.

import { json } from "./api.js";
import { ask, counted, day, h, percent, toast } from "./dom.js";
import { state } from "./state.js";

const DEEDS = {
  fit: "Fitted",
  update: "Learnt",
  calibrate: "Calibrated",
  merge: "Merged",
  undo: "Taken back",
  learn: "Learnt",
  recalibrate: "Recalibrated",
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

// `kept` are the versions and changes of a model; `after` is called once another one is in use
export function versions(kept, after) {
  const row = (one) =>
    h(
      "li",
      { class: one.in_use ? "in-use" : "" },
      h(
        "div",
        {},
        h("code", {}, one.version),
        " ",
        one.in_use
          ? h("span", { class: "tag good" }, "in use")
          : h("span", { class: "muted" }, `until ${day(one.until)}`),
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
            onclick: () => undo(one, kept.versions.find((other) => other.in_use), after),
          },
          "Go back",
        ),
    );
  const undone = kept.changes.filter((one) => one.what === "undo");
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

async function undo(then, now, after) {
  const facts = (one) => [
    ["Version", one.version],
    ["Good parts learnt", one.images],
    ["Good parts that may be rejected", percent(one.false_alarm)],
    [DEEDS[one.what] ?? one.what, `${day(one.when)}${one.who ? `, ${one.who}` : ""}`],
  ];
  const side = (name, one) =>
    h(
      "section",
      { class: "tile" },
      h("h3", {}, name),
      h("dl", { class: "facts" }, facts(one).map(([what, value]) => h("div", {}, h("dt", {}, what), h("dd", {}, value)))),
    );
  const content = h(
    "div",
    { class: "proposal" },
    h("p", {}, "The earlier model is put back into use, byte for byte. The present one is kept."),
    h("div", { class: "tiles" }, side("Now", now), side("Then", then)),
  );
  if (!(await ask(`Go back to version ${then.version}?`, content, "Go back"))) return;
  try {
    await json(`/v1/models/${encodeURIComponent(state.model)}/undo`, {
      method: "POST",
      body: { version: then.version, who: state.who, instead_of: now.sha256 },
    });
    await after();
    toast(`Version ${then.version} is in use again.`, "good");
  } catch (error) {
    toast(error.message, "bad");
  }
}
