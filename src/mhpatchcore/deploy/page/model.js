// A model: its scores, its threshold and what another would mean, the promise, and drift.

import { json, lazily } from "./api.js";
import { histogram } from "./charts.js";
import { $, counted, glyph, h, num, percent, toast, wildness } from "./dom.js";
import { propose } from "./propose.js";
import { on, state } from "./state.js";
import { history, versions } from "./versions.js";

let [rates, choices, drift, kept, newest] = [[], [], null, null, null];
let step = null; // of the slider; null is the model's own rate
let loading = 0;

export function prepareModel() {
  on("details", () => $("view-model").hidden || loadAll());
  on("models", () => $("view-model").hidden || loadAll());
}

let soon = null;
export function partScored() {
  if ($("view-model").hidden || soon) return;
  soon = setTimeout(() => {
    soon = null;
    loadAll(true);
  }, 1500);
}

export async function loadAll(again = false) {
  const name = state.model;
  const mine = ++loading;
  const path = `/v1/models/${encodeURIComponent(name)}`;
  try {
    const found = await Promise.all([
      json(`${path}/rates`),
      json(`${path}/choices`),
      json(`${path}/drift`),
      json(`${path}/versions`),
      json(path),
      json(`/v1/parts?limit=1&model=${encodeURIComponent(name)}`),
    ]);
    if (mine !== loading) return;
    [rates, choices, drift, kept, state.details, [newest]] = found;
    newest = newest?.id;
    if (!again || document.activeElement?.id !== "rate-slider") draw(); // a slider in somebody's hand stays
  } catch (error) {
    toast(error.message, "bad");
  }
}

// the step of the slider that has the model's own rate
const own = () =>
  rates.reduce(
    (best, one, i) =>
      Math.abs(one.false_alarm - state.details.false_alarm) <
      Math.abs(rates[best].false_alarm - state.details.false_alarm)
        ? i
        : best,
    0,
  );

function draw() {
  const details = state.details;
  const focused = document.activeElement?.id;
  $("view-model").replaceChildren(
    h(
      "div",
      { class: "page-head" },
      h("h2", {}, details.name),
      h(
        "p",
        { class: "lead" },
        `Learnt from ${counted(details.images_learnt, "good part")} with ${details.network}; the bank keeps ${details.rows} patches. `,
        details.problem && h("b", {}, details.problem),
      ),
      wildness(details) && h("p", { class: "banner bad" }, glyph("rejected", 18), " ", wildness(details)),
    ),
    h(
      "div",
      { class: "model" },
      h("div", { class: "column" }, threshold(), history(details.history)),
      h("div", { class: "column" }, promise(), drifting(), versions(kept, wentBack)),
    ),
  );
  if (focused === "rate-slider") $("rate-slider")?.focus();
}

const wentBack = () => (step = null);

function threshold() {
  const details = state.details;
  if (!rates.length)
    return h(
      "section",
      { class: "card scores" },
      h("h3", {}, "Scores"),
      h(
        "p",
        { class: "empty" },
        "The model has no calibration scores, so it judges nothing. Recalibrate it with good parts under Learn.",
      ),
    );
  const at = Math.min(step ?? own(), rates.length - 1);
  const drawing = h("div", { class: "histogram", id: "histogram" });
  const told = h("p", { class: "told", id: "rate-told" });
  const set = h("button", { type: "button", class: "primary", id: "rate-set" }, "Preview this threshold");
  const slider = h("input", {
    type: "range",
    id: "rate-slider",
    min: 0,
    max: rates.length - 1,
    value: at,
    "aria-label": "Share of good parts that may be rejected",
  });
  const show = () => {
    const one = rates[slider.value];
    const is_own = Number(slider.value) === own();
    step = is_own ? null : Number(slider.value);
    const limit = is_own ? details.threshold : one.threshold;
    const small = matchMedia("(max-width: 720px)").matches;
    drawing.replaceChildren(histogram(details.calibration_scores, drift?.scores ?? [], limit, small));
    slider.setAttribute("aria-valuetext", `${percent(one.false_alarm)}, threshold ${num(limit)}`);
    const n = details.calibration_scores.length;
    told.replaceChildren(
      h("b", {}, `About ${percent(one.false_alarm)} of good parts would be rejected`),
      `, with a threshold of ${num(limit)}: ${Math.round(one.share * n)} of the ${n} calibration scores lie above it`,
      one.recent_share === null
        ? "."
        : `, and ${percent(one.recent_share)} of the last ${counted(drift.scores.length, "part")}.`,
      is_own ? " This is the threshold in use." : "",
    );
    set.disabled = is_own;
  };
  slider.addEventListener("input", show);
  set.addEventListener("click", async () => {
    const { false_alarm } = rates[slider.value];
    if (
      await propose(`Reject about ${percent(false_alarm)} of good parts`, {
        action: "recalibrate",
        false_alarm,
        ids: [],
      })
    )
      step = null;
  });
  show();
  return h(
    "section",
    { class: "card scores" },
    h("h3", {}, "Scores and threshold"),
    h(
      "p",
      { class: "key" },
      h(
        "span",
        {},
        h("span", { class: "swatch steps" }),
        `${counted(details.calibration_scores.length, "good part")} of the calibration`,
      ),
      h("span", {}, h("span", { class: "swatch bars" }), `the last ${counted(drift?.scores.length ?? 0, "part")}`),
    ),
    drawing,
    h(
      "div",
      { class: "rate" },
      h("span", { class: "muted" }, "fewer false alarms"),
      slider,
      h("span", { class: "muted" }, "more defects found"),
    ),
    told,
    set,
    choiceTable(),
  );
}

// the usual rates and the one in use, with what each finds of the labelled defects
function choiceTable() {
  const known = choices[0]?.of;
  const names = ["Good parts rejected", "Threshold", ...(known ? ["Defects found"] : [])];
  const row = (one) =>
    h(
      "tr",
      { ...(one.in_use && { class: "in-use", "aria-current": "true" }) },
      h("td", {}, percent(one.false_alarm), one.in_use && h("span", { class: "tag" }, "in use")),
      h("td", {}, num(one.threshold)),
      known && h("td", {}, `${one.found} of ${one.of}`),
    );
  return h(
    "table",
    { id: "choices" },
    known && h("caption", {}, "Labelled defects count by the scores that they had when they were labelled."),
    h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, ...choices.map(row)),
  );
}

function promise() {
  const { observed_rate: observed, promised_rate: promised, observed_parts: n, alarm } = state.details;
  const heading = h("h3", {}, "Rejections against the promise");
  if (promised === null)
    return h(
      "section",
      { class: "card" },
      heading,
      h("p", { class: "empty" }, "Without a threshold nothing is promised."),
    );
  const most = Math.max(promised, observed ?? 0, 0.02) * 1.15;
  const bar = (name, share, tone) =>
    h(
      "div",
      { class: "rate-bar" },
      h("span", {}, name),
      h(
        "span",
        { class: "rate-track" },
        h("span", { class: `rate-fill ${tone}`, css: { width: `${(100 * (share ?? 0)) / most}%` } }),
      ),
      h("b", {}, percent(share)),
    );
  const words =
    observed === null
      ? "No parts have been scored with this model yet."
      : alarm
        ? "Far more than good parts alone would give: there are defects, or the line has changed."
        : `What ${counted(n, "part")} would give if nearly all were good, within chance.`;
  return h(
    "section",
    { class: "card" },
    heading,
    bar("promised", promised, ""),
    bar("observed", observed, alarm ? "bad" : "ink"),
    h("p", { class: alarm ? "banner bad" : "muted" }, alarm && glyph("rejected", 18), alarm && " ", words),
  );
}

function drifting() {
  const heading = h("h3", {}, "Has the line changed?");
  if (!drift?.n)
    return h("section", { class: "card" }, heading, h("p", { class: "empty" }, "No parts to compare yet."));
  const sentence = drift.verdict.charAt(0).toUpperCase() + drift.verdict.slice(1);
  return h(
    "section",
    { class: "card" },
    heading,
    h(
      "p",
      { class: drift.is_drift ? "banner bad" : "" },
      drift.is_drift && glyph("rejected", 18),
      drift.is_drift && " ",
      `${sentence}.`,
    ),
    h(
      "dl",
      { class: "facts" },
      [
        ["Median then", num(drift.reference_median)],
        ["Median now", num(drift.median)],
        ["Parts compared", `${drift.n} with ${drift.n_reference}`],
      ].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    ),
    camera(drift.camera),
  );
}

// what has changed in the images themselves, with one of now beside one of then
function camera(seen) {
  const sentence = seen.verdict.charAt(0).toUpperCase() + seen.verdict.slice(1);
  if (!seen.is_drift) return h("p", {}, `${sentence}.`);
  const shown = (path, caption) => {
    const image = h("img", { alt: "" });
    lazily(image, path);
    return h("figure", {}, image, h("figcaption", {}, caption));
  };
  return h(
    "div",
    { id: "camera" },
    h("p", { class: "banner bad" }, glyph("rejected", 18), " ", `${sentence}.`),
    h(
      "div",
      { class: "then-and-now" },
      shown(`/v1/models/${encodeURIComponent(state.model)}/reference.jpg`, "as it was learnt"),
      newest && shown(`/v1/parts/${newest}/image.jpg?longest=480`, "one of the last parts"),
    ),
  );
}
