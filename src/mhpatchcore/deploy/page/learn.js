// The inbox: labelled parts, and what can be learnt from them.

import { json, lazily } from "./api.js";
import { $, ask, clipped, clock, counted, glyph, h, num, toast, word } from "./dom.js";
import { propose } from "./propose.js";
import { changed, current, on, state } from "./state.js";

const MOST_SHOWN = 200;
const left_out = new Set(); // ids of good parts that are not to be learnt

export function prepareLearn() {
  on("labels", draw);
  on("models", draw);
}

function draw() {
  const fresh = newParts();
  $("learn-count").hidden = fresh.length === 0;
  $("learn-count").textContent = fresh.length;
  if ($("view-learn").hidden) return;
  const good = state.labels.filter((one) => one.label === "good").length;
  const defects = state.labels.length - good;
  $("view-learn").replaceChildren(
    h(
      "div",
      { class: "page-head" },
      h("h2", {}, "Teach it what you know"),
      h(
        "p",
        { class: "lead" },
        "Label parts as good or defective while you inspect. Here the model learns from them: you see first what would change, then you decide. Every earlier model stays within reach.",
      ),
    ),
    h("div", { class: "learn" }, actions(fresh), labelled(good, defects)),
  );
}

export { draw as drawLearn };

const newParts = () => state.labels.filter((one) => one.label === "good" && !one.learnt);
const chosen = () => newParts().filter((one) => !left_out.has(one.id));

function actions(fresh) {
  const ids = chosen().map((one) => one.id);
  const learn = h(
    "button",
    {
      type: "button",
      class: "primary",
      id: "learn-go",
      disabled: ids.length === 0,
      onclick: () => propose(`Learn ${counted(ids.length, "good part")}`, { action: "learn", ids }),
    },
    ids.length ? `Preview learning ${counted(ids.length, "good part")}` : "No new good parts",
  );
  const rejected = chosen().filter((one) => one.verdict === "rejected").length;
  const rate = h("input", {
    type: "number",
    id: "rate",
    min: "0.1",
    max: "50",
    step: "0.1",
    value: (100 * (current()?.false_alarm ?? 0.01)).toFixed(1).replace(/\.0$/, ""),
  });
  const use = h("input", { type: "checkbox", id: "use-parts" });
  const recalibrate = () =>
    propose("Recalibrate", {
      action: "recalibrate",
      false_alarm: Number(rate.value) / 100,
      ids: use.checked ? ids : [],
    });
  return h(
    "div",
    { class: "actions" },
    h(
      "section",
      { class: "card" },
      h("h3", {}, "Learn good parts"),
      h(
        "p",
        { class: "muted" },
        `They become part of what is normal.${rejected ? ` ${rejected === 1 ? "One" : rejected} of them had been rejected: learnt, but not counted in the threshold.` : ""}`,
      ),
      learn,
    ),
    teaching(),
    h(
      "section",
      { class: "card" },
      h("h3", {}, "Recalibrate"),
      h("p", { class: "muted" }, "Another threshold; nothing is learnt anew."),
      h(
        "label",
        { class: "field inline" },
        h("span", {}, "Good parts that may be rejected"),
        h("span", { class: "unit" }, rate, " %"),
      ),
      h("label", { class: "check" }, use, ` Add the scores of ${counted(ids.length, "chosen good part")}`),
      h("button", { type: "button", id: "recalibrate-go", onclick: recalibrate }, "Preview the threshold"),
    ),
  );
}

function teaching() {
  const defects = state.labels.filter((one) => one.label === "defect");
  const name = h("input", { type: "text", id: "defect-name", maxlength: "100", placeholder: "as their notes say" });
  const teach = () =>
    propose(`Teach ${counted(defects.length, "defect")}`, {
      action: "teach",
      ids: defects.map((one) => one.id),
      name: name.value.trim(),
    });
  return h(
    "section",
    { class: "card" },
    h("h3", {}, "Teach defects"),
    h("p", { class: "muted" }, "Parts that look like them are rejected, and named. Those it knows are left out."),
    h("label", { class: "field" }, h("span", {}, "What they are called"), name),
    h(
      "button",
      { type: "button", id: "teach-go", disabled: defects.length === 0, onclick: teach },
      defects.length ? `Preview teaching ${counted(defects.length, "defect")}` : "No labelled defects",
    ),
  );
}

function labelled(good, defects) {
  const heading = h(
    "h3",
    {},
    "Labelled parts ",
    h("span", { class: "muted" }, `${counted(good, "good part")}, ${counted(defects, "defect")}`),
  );
  if (!state.labels.length) {
    return h(
      "section",
      { class: "card labelled" },
      heading,
      h(
        "p",
        { class: "empty" },
        "Nothing yet. Under Inspect, press ",
        h("kbd", {}, "g"),
        " for a good part and ",
        h("kbd", {}, "d"),
        " for a defect.",
      ),
    );
  }
  return h(
    "section",
    { class: "card labelled" },
    heading,
    h("ul", { class: "cards" }, state.labels.slice(0, MOST_SHOWN).map(cardOf)),
    state.labels.length > MOST_SHOWN &&
      h("p", { class: "muted" }, `The newest ${MOST_SHOWN} of ${state.labels.length} are shown.`),
  );
}

function cardOf(one) {
  const name = one.part || one.name || `part ${one.id}`;
  const image = h("img", { alt: "", width: 150, height: 150 });
  lazily(image, `/v1/inbox/${one.id}/image.jpg?longest=320`);
  const choose = one.label === "good" && !one.learnt;
  const other = one.label === "good" ? "defect" : "good";
  const act = async (method, body, query = "") => {
    try {
      const entry = await json(`/v1/inbox/${one.id}${query}`, { method, body });
      state.labels = entry
        ? state.labels.map((old) => (old.id === entry.id ? entry : old))
        : state.labels.filter((old) => old.id !== one.id);
      changed("labels");
    } catch (error) {
      toast(error.message, "bad");
    }
  };
  const remove = async () => {
    const what = h("p", {}, `${clipped(name)} is labelled as ${one.label === "good" ? "a good part" : "a defect"}.`);
    if (await ask("Remove this label?", what, "Remove"))
      await act("DELETE", undefined, `?who=${encodeURIComponent(state.who)}`);
  };
  const pick = h("input", {
    type: "checkbox",
    "aria-label": `Learn ${name}`,
    onchange: (event) => {
      if (event.target.checked) left_out.delete(one.id);
      else left_out.add(one.id);
      draw();
      document.querySelector(`[data-pick-part="${one.id}"]`)?.focus();
    },
  });
  pick.checked = !left_out.has(one.id);
  pick.dataset.pickPart = one.id;
  return h(
    "li",
    { class: `labelled-part ${one.label}` },
    h("div", { class: "thumb" }, image, choose && pick),
    h(
      "div",
      { class: "labelled-text" },
      h("b", { title: name }, name),
      h(
        "span",
        { class: "tags" },
        h("span", { class: `tag ${one.label}` }, one.label === "good" ? "good part" : "defect"),
        one.learnt && h("span", { class: "tag" }, "learnt"),
      ),
      h(
        "span",
        { class: "muted line" },
        glyph(one.verdict, 14),
        ` ${word(one.verdict).toLowerCase()} with ${num(one.score)}`,
      ),
      h("span", { class: "muted line" }, `${clock(one.at)}${one.who ? `, ${one.who}` : ""}`),
      one.note && h("q", {}, one.note),
      h(
        "span",
        { class: "row" },
        h(
          "button",
          {
            type: "button",
            class: "quiet small",
            "aria-label": `To ${other}: ${name}`,
            onclick: () => act("PATCH", { label: other, who: state.who }),
          },
          `To ${other}`,
        ),
        h(
          "button",
          { type: "button", class: "quiet small", "aria-label": `Remove ${name}`, onclick: remove },
          "Remove",
        ),
      ),
    ),
  );
}
