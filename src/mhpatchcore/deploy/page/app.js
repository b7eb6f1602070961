// The page: which view is shown, which model, the keys, and what the service tells meanwhile.

import { listen } from "./api.js";
import { $, clock, dialog, h, onEnter, since, toast, wildness } from "./dom.js";
import { prepareIntake } from "./intake.js";
import { drawLearn, prepareLearn } from "./learn.js";
import { loadAll, partScored, prepareModel } from "./model.js";
import { label, prepareLabel, undo } from "./label.js";
import { preparePart, toggle } from "./part.js";
import { addParts, changed, choose, loadLabels, loadModel, loadModels, loadParts, on, select, shownParts, state } from "./state.js";
import { follow, followed, move, prepareStrip } from "./strip.js";
import { prepareZoom, zoom } from "./zoom.js";

const VIEWS = ["inspect", "learn", "model"];
const KEYS = [
  ["j / k", "the next part, the one before"],
  ["g", "label it as a good part"],
  ["d", "label it as a defect"],
  ["u", "take the last label back"],
  ["h", "heat on and off"],
  ["o", "outlines on and off"],
  ["z", "a closer look"],
  ["f", "follow what is scored live"],
  ["1 2 3", "Inspect, Learn, Model"],
  ["?", "this page"],
];

function show() {
  const wanted = location.hash.slice(1);
  const view = VIEWS.includes(wanted) ? wanted : "inspect";
  for (const one of VIEWS) $(`view-${one}`).hidden = one !== view;
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  $("title").textContent = { inspect: "Inspection", learn: "Learning", model: "The model" }[view];
  document.title = `${$("title").textContent} · mhpatchcore`;
  if (view === "learn") {
    drawLearn();
    if (state.model) loadLabels().catch(() => {}); // others label, too
  }
  if (view === "model" && state.model) loadAll();
}

function drawModels() {
  $("model-picker").replaceChildren(
    ...state.models.map((one) => h("option", { value: one.name, selected: one.name === state.model }, one.name)),
  );
  $("model-picker").value = state.model;
}

function help() {
  const keys = h(
    "dl",
    { class: "keys" },
    KEYS.map(([key, what]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, what))),
  );
  const words = h(
    "div",
    {},
    h(
      "p",
      {},
      "Every part gets a score: how far its most unusual place is from the good parts the model knows. Above the threshold it is rejected. Colours begin at half the threshold and end at twice the threshold, so a good part looks calm.",
    ),
    keys,
    h("p", { class: "more" }, h("a", { href: "reference.html" }, "All requests of the service")),
  );
  dialog("Help", words, [["Close", "", "primary"]]);
}

async function you() {
  const field = h("input", { id: "who", value: state.who, autocomplete: "name", maxlength: 100 });
  const content = h(
    "div",
    {},
    h("p", {}, "Labels and changes of the model are kept with your name."),
    h("label", { class: "field" }, h("span", {}, "Your name"), field),
  );
  const { box, closed } = dialog("Who are you?", content, [
    ["Keep", "keep", "primary"],
    ["Cancel", ""],
  ]);
  onEnter(field, () => box.close("keep"));
  field.focus();
  if ((await closed) !== "keep") return;
  state.who = field.value.trim();
  localStorage.setItem("who", state.who);
  drawYou();
}

const drawYou = () => ($("you").textContent = state.who || "Who are you?");

function pressed(event) {
  const typing = event.target.closest?.("input:not([type=range]):not([type=checkbox]), textarea, select, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.repeat && "gdu".includes(event.key)) return; // a key that is held down says nothing new
  const inspecting = !$("view-inspect").hidden;
  const acts = {
    "?": help,
    1: () => (location.hash = "#inspect"),
    2: () => (location.hash = "#learn"),
    3: () => (location.hash = "#model"),
    ...(inspecting && {
      j: () => move(1),
      k: () => move(-1),
      g: () => label("good"),
      d: () => label("defect"),
      u: undo,
      h: () => toggle("heat"),
      o: () => toggle("outlines"),
      z: () => zoom(),
      f: () => follow(!state.follow),
    }),
  };
  const act = acts[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

function heard(kind, what) {
  if (kind === "part") {
    addParts([what]);
    const first = shownParts()[0];
    if (first && what.model === state.model) followed(first.id);
    partScored();
  }
  if (kind === "model") {
    const known = state.models.some((one) => one.name === what.name);
    state.models = known ? state.models.map((one) => (one.name === what.name ? what : one)) : [...state.models, what];
    changed("models");
    if (wildness(what)) toast(wildness(what), "bad");
    if (what.name === state.model && what.sha256 !== state.details?.sha256) loadModel().catch(() => {});
  }
}

let [heard_at, away_since] = [new Date(), null]; // the last sign of life; when the stream of events ended

function connected(now) {
  $("live").dataset.state = now;
  $("live-text").textContent = now === "on" ? "live" : "reconnecting";
  if (now === "on") {
    loadParts().catch(() => {});
    if (away_since) loadModels().then(loadModel).catch(() => {}); // they may be others now
    away_since = null;
  } else away_since ??= new Date();
  drawSilence();
}

const GRACE = 2000; // milliseconds without the service that nobody need know of

// without an answer nothing that is shown says how the line is now: that is told larger than any verdict
function drawSilence() {
  const silent = away_since && new Date() - away_since > GRACE ? heard_at : null;
  $("silent").hidden = !silent;
  document.body.classList.toggle("is-silent", Boolean(silent));
  if (silent) $("silent-text").textContent = `For ${since(new Date() - silent)}. What is shown is from before.`;
  if (silent === state.silent_since) return;
  state.silent_since = silent;
  if (silent) $("silent-word").textContent = `No answer since ${clock(silent)}`;
  changed("silence");
}

async function start() {
  prepareStrip();
  preparePart();
  prepareLabel();
  prepareZoom();
  prepareIntake();
  prepareLearn();
  prepareModel();
  on("models", drawModels);
  drawYou();
  $("model-picker").addEventListener("change", (event) =>
    choose(event.target.value).catch((error) => toast(error.message, "bad")),
  );
  $("help").addEventListener("click", help);
  $("you").addEventListener("click", you);
  addEventListener("keydown", pressed);
  addEventListener("hashchange", show);
  show();
  try {
    await loadModels();
    const loaded = await Promise.allSettled([loadModel(), loadParts()]);
    const first = shownParts()[0]; // verdicts do not depend on the labels
    if (first && !state.selected) select(first.id, true);
    show();
    for (const one of loaded) if (one.reason) throw one.reason;
  } catch (error) {
    toast(error.message, "bad");
  }
  document.documentElement.dataset.ready = "yes";
  listen(heard, connected, () => (heard_at = new Date()));
  setInterval(drawSilence, 1000);
}

start();
