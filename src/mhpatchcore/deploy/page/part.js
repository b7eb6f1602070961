// One part: the picture with its heat, the verdict, the evidence.

import { json, now, picture } from "./api.js";
import { gauge } from "./charts.js";
import { $, announce, clock, counted, glyph, h, kind, num, percent, since, word } from "./dom.js";
import { called, shown } from "./label.js";
import { on, selectedPart, state } from "./state.js";

export function preparePart() {
  on("selected", drawPart);
  for (const what of ["details", "silence"]) on(what, drawVerdict);
  $("heat").addEventListener("input", showHeat);
  $("outlines").addEventListener("change", showHeat);
  setInterval(drawAge, 5000);
  showHeat();
}

export function toggle(id) {
  const control = $(id);
  if (control.type === "checkbox") control.checked = !control.checked;
  else control.value = Number(control.value) ? 0 : 70;
  showHeat();
}

function showHeat() {
  $("layer-heat").style.opacity = String($("heat").value / 100);
  $("layer-outline").hidden = !$("outlines").checked;
}

let looking = { id: null, over: new AbortController() }; // at a part; what is fetched for it ends with it

function drawPart() {
  const part = selectedPart();
  $("welcome").hidden = Boolean(part);
  $("shown").hidden = !part;
  $("verdict").hidden = !part;
  $("evidence").hidden = !part || Boolean(part.reason);
  $("view-inspect").classList.toggle("has-part", Boolean(part));
  if (looking.id === part?.id && part) return drawVerdict();
  looking.over.abort();
  looking = { id: part?.id, over: new AbortController() };
  if (!part) return;
  const told = `${called(part)}: ${word(part.verdict).toLowerCase()}, ${part.reason ?? `score ${num(part.score)}`}`;
  $("layer-image").alt = told;
  $("caption").textContent = told;
  $("no-picture").hidden = !part.reason;
  $("no-picture").textContent = part.reason ? "This part could not be judged, so there is nothing to show." : "";
  for (const id of ["layers", "controls"]) $(id).hidden = Boolean(part.reason);
  drawVerdict();
  announce(told);
  if (part.reason) return;
  const [tall, wide] = part.size;
  $("layers").style.aspectRatio = `${wide} / ${tall}`;
  $("mat").style.setProperty("--ratio", String(wide / tall));
  $("mat").classList.toggle("flat", wide > 1.8 * tall);
  drawEvidence(part);
  drawPictures(part, looking.over.signal);
}

function drawPictures(part, signal) {
  for (const [id, path] of [
    ["layer-image", `/v1/parts/${part.id}/image.jpg`],
    ["layer-heat", `/v1/parts/${part.id}/heatmap.png?style=layer`],
    ["layer-outline", `/v1/parts/${part.id}/heatmap.png?style=outline`],
  ]) {
    const layer = $(id);
    layer.classList.add("coming");
    const show = async () => {
      const url = await picture(path, signal);
      if (signal.aborted) return;
      layer.src = url;
      layer.classList.remove("coming");
      await layer.decode();
      if (id === "layer-image" && !signal.aborted) shown(part.id);
    };
    show().catch(() => {
      if (signal.aborted || id !== "layer-image") return;
      $("no-picture").hidden = false;
      $("no-picture").textContent = "No picture of this part is kept.";
      shown(part.id);
    });
  }
}

function drawVerdict() {
  const part = selectedPart();
  if (!part) return;
  const scores = state.details?.name === part.model ? state.details.calibration_scores : [];
  const verdict = word(part.verdict);
  const times = part.reason
    ? "because it could not be judged"
    : part.threshold
      ? `${(part.score / part.threshold).toFixed(2)} × the threshold`
      : "the model has no threshold";
  const silent = state.silent_since; // then nothing that is shown says how the line is now
  const shape = silent ? "no answer" : part.verdict;
  $("verdict").dataset.kind = kind(shape);
  $("glyph").replaceChildren(glyph(shape, 46));
  $("verdict-word").textContent = silent ? "No answer" : verdict;
  $("verdict-times").textContent = silent ? `since ${clock(silent)}. Before that: ${verdict.toLowerCase()}, ${times}` : times;
  $("badge").dataset.kind = kind(shape);
  $("badge").replaceChildren(
    glyph(shape, 20),
    ` ${silent ? "No answer" : verdict} `,
    h("span", { class: "n" }, silent ? "" : num(part.score)),
  );
  $("gauge").hidden = Boolean(part.reason);
  if (!part.reason) $("gauge").replaceChildren(gauge(part, scores));
  $("meaning").textContent = part.reason ?? meaning(part, scores);
  const ms = 1000 * Object.values(part.seconds ?? {}).reduce((sum, one) => sum + one, 0);
  const facts = [
    ["Part", part.part || part.name],
    ...(part.defect ? [["Defect", `${part.defect} (${percent(part.regions[0].sure)} sure)`]] : []),
    ["When", clock(part.at)],
    ...(part.size ? [["Size", `${part.size[1]} × ${part.size[0]} px`]] : []),
    ["Took", `${ms.toFixed(0)} ms`],
    ["Model", `${part.model} · ${part.sha256.slice(0, 8)}`],
    ...(part.trial ? [["Trial", "counts neither in rates nor in alarms"]] : []),
  ];
  $("facts").replaceChildren(...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  drawAge();
}

const OLD = 60000; // milliseconds after which a verdict is told to be old

function drawAge() {
  const part = selectedPart();
  const age = part ? now() - Date.parse(part.at) : 0;
  $("age").hidden = age < OLD;
  $("age").textContent = `${since(age)} ago`;
}

function meaning(part, scores) {
  const higher = scores.filter((one) => one >= part.score).length;
  const n = scores.length;
  const places = part.regions.length;
  const area = places ? part.regions.reduce((sum, one) => sum + one.area, 0) / (part.size[0] * part.size[1]) : 0;
  const where = places
    ? ` ${counted(places, "place")} ${places === 1 ? "stands" : "stand"} out, ${percent(area)} of the image.`
    : "";
  if (!n) return `Nothing is known to compare the score with.${where}`;
  const known = `${n} good parts it was calibrated with`;
  if (higher === 0) return `None of the ${known} scores this high.${where}`;
  return `${higher} of the ${known} ${higher === 1 ? "scores" : "score"} this high.${where}`;
}

let later;

function drawEvidence(part) {
  clearTimeout(later);
  $("places").classList.add("coming");
  $("boxes").replaceChildren();
  $("evidence-note").textContent = "looking …";
  const { signal } = looking.over;
  later = setTimeout(async () => {
    try {
      const evidence = await json(`/v1/parts/${part.id}/evidence.json`, { signal });
      if (!signal.aborted) showEvidence(part, evidence);
    } catch (error) {
      if (signal.aborted) return;
      $("places").replaceChildren();
      $("evidence-note").textContent = error.message;
    }
  }, 180);
}

function showEvidence(part, evidence) {
  $("places").classList.remove("coming");
  const found = evidence.places.some((place) => place.nearest.some((patch) => patch.picture));
  $("evidence-note").textContent = found
    ? "The most unusual places, and the normal patches nearest to them"
    : "The training images are not on this machine, so only distances are shown";
  $("places").replaceChildren(...evidence.places.map((place, i) => placeOf(place, i, evidence.pixel_threshold)));
  const [tall, wide] = part.size;
  $("boxes").replaceChildren(
    ...evidence.places.map(({ box: [top, left, bottom, right] }, i) =>
      h(
        "span",
        {
          class: "box",
          css: {
            left: `${(100 * left) / wide}%`,
            top: `${(100 * top) / tall}%`,
            width: `${(100 * (right - left)) / wide}%`,
            height: `${(100 * (bottom - top)) / tall}%`,
          },
        },
        String(i + 1),
      ),
    ),
  );
}

function placeOf(place, i, threshold) {
  const times = threshold ? `${(place.score / threshold).toFixed(1)} × the pixel threshold` : "";
  const layers = place.layers.map((one) => `${Math.round(100 * one.share)}\u202f% at ${one.stride}\u202fpx`).join(", ");
  const crop = (src, title, note, own) =>
    h(
      "figure",
      { class: own ? "crop own" : "crop" },
      src ? h("img", { src, alt: title, width: 160, height: 160 }) : h("div", { class: "no-crop" }, "no picture"),
      h("figcaption", {}, h("b", {}, own ? title : shortened(title)), h("span", {}, note)),
    );
  return h(
    "article",
    { class: "place", "aria-label": `Place ${i + 1}` },
    crop(place.picture, `${i + 1} · this part`, times || num(place.score), true),
    h("span", { class: "against", "aria-hidden": "true" }, "≠"),
    place.nearest.map((patch) =>
      crop(patch.picture, patch.image ?? "an average", `distance ${num(patch.distance)}`, false),
    ),
    h("p", { class: "muted layers-note" }, `Of the difference: ${layers}`),
  );
}

const shortened = (name) => (name.length > 22 ? `…${name.slice(-21)}` : name);
