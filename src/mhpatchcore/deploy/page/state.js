// What the page knows: models, the last parts, labels; and who wants to hear when it changes.

import { json } from "./api.js";

export const state = {
  models: [], // facts of each
  model: localStorage.getItem("model") ?? "", // the name of the one that is looked at
  details: null, // of that one: history, calibration scores, settings
  parts: [], // the newest first, of all models
  labels: [], // the inbox of the model
  selected: null, // the id of a part
  filter: "all",
  sort: "newest",
  follow: true,
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

// a label belongs to an image: a part has it if the image, by its name and score, is that of a labelled one
export const labelOf = (part) =>
  state.labels.find((one) => one.name === part.name && one.model_sha256 === part.sha256 && one.score === part.score);

export function shownParts() {
  const wanted = state.parts.filter(
    (one) => one.model === state.model && (state.filter === "all" || one.verdict === state.filter),
  );
  if (state.sort === "highest") wanted.sort((a, b) => b.score - a.score);
  if (state.sort === "lowest") wanted.sort((a, b) => a.score - b.score);
  if (state.sort === "name") wanted.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
  return wanted;
}

export function addParts(fresh) {
  const known = new Set(state.parts.map((one) => one.id));
  const added = fresh.filter((one) => one.id && !known.has(one.id));
  if (!added.length) return;
  state.parts = [...added, ...state.parts].sort((a, b) => (a.at < b.at ? 1 : -1)).slice(0, MOST_PARTS);
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
  state.selected = shownParts()[0]?.id ?? null;
  state.details = null;
  changed("models", "parts", "selected");
  await loadModel();
}

export function select(id) {
  state.selected = id;
  changed("selected");
}
