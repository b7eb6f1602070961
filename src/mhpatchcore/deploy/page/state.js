// What the page knows: models, the last parts, labels; and who wants to hear when it changes.

import { json } from "./api.js";

export const state = {
  models: [], // facts of each
  model: localStorage.getItem("model") ?? "", // the name of the one that is looked at
  details: null, // of that one: history, calibration scores, settings
  parts: [], // the newest first, of all models
  labels: [], // the inbox of the model
  selected: null, // the id of a part
  chosen: false, // whether a person has chosen it, and not the line that went on
  previous: null, // the one that was shown before the line went on
  filter: "all",
  sort: "newest",
  follow: true,
  held_at: "", // the time of the newest part when somebody stopped following
  touched_at: 0, // when somebody last pressed a key or touched the page, by the browser's clock
  silent_since: null, // when the service was last heard, if it does not answer
  who: localStorage.getItem("who") ?? "",
};

const MOST_PARTS = 500;
const listeners = new Map();

export function on(what, listener) {
  listeners.set(what, [...(listeners.get(what) ?? []), listener]);
}

export function changed(...whats) {
  for (const what of whats) for (const listener of listeners.get(what) ?? []) listener();
}

export const current = () => state.models.find((one) => one.name === state.model);
export const selectedPart = () => state.parts.find((one) => one.id === state.selected);

// a label belongs to an image: a part has it if the image is that of a labelled one
export const labelOf = (part) => state.labels.find((one) => one.sha256 === part.image_sha256);

const height = (part) => part.score ?? Infinity; // what could not be judged stands with the worst
const compared = (a, b) => (a > b) - (a < b);

export function shownParts() {
  const wanted = state.parts.filter(
    (one) => one.model === state.model && (state.filter === "all" || one.verdict === state.filter),
  );
  if (state.sort === "highest") wanted.sort((a, b) => compared(height(b), height(a)));
  if (state.sort === "lowest") wanted.sort((a, b) => compared(height(a), height(b)));
  if (state.sort === "name") wanted.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
  return wanted;
}

// parts of the line that came since somebody stopped following
export const newer = () =>
  state.parts.filter((one) => one.model === state.model && !one.trial && one.at > state.held_at).length;

export function addParts(fresh) {
  const parts = new Map(state.parts.map((one) => [one.id, one]));
  for (const one of fresh) if (one.id) parts.set(one.id, { ...parts.get(one.id), ...one });
  state.parts = [...parts.values()].sort((a, b) => compared(b.at, a.at)).slice(0, MOST_PARTS);
  changed("parts");
}

export async function loadModels() {
  state.models = await json("/v1/models");
  if (!current()) state.model = state.models[0]?.name ?? "";
  changed("models");
}

export async function loadModel() {
  if (!state.model) return;
  const path = `/v1/models/${encodeURIComponent(state.model)}`;
  const [details, labels] = await Promise.all([json(path), json(`/v1/inbox?model=${encodeURIComponent(state.model)}`)]);
  state.details = details;
  state.labels = labels;
  state.models = state.models.map((one) => (one.name === details.name ? { ...one, ...details } : one));
  changed("details", "labels");
}

export async function loadLabels() {
  state.labels = await json(`/v1/inbox?model=${encodeURIComponent(state.model)}`);
  changed("labels");
}

export async function loadParts() {
  addParts(await json("/v1/parts?limit=500"));
}

export async function choose(name) {
  state.model = name;
  localStorage.setItem("model", name);
  [state.selected, state.chosen, state.previous] = [shownParts()[0]?.id ?? null, false, null];
  state.details = null;
  changed("models", "parts", "selected");
  await loadModel();
}

// `by_line`: the line went on, and nobody has asked for this part
export function select(id, by_line = false) {
  state.previous = by_line && state.selected !== id ? state.selected : null;
  state.chosen = !by_line;
  state.selected = id;
  changed("selected");
}
