// One part: the picture with its heat, the verdict, the evidence, the label.

import { json, picture } from "./api.js";
import { gauge } from "./charts.js";
import { $, announce, clock, counted, glyph, h, kind, num, percent, toast, word } from "./dom.js";
import { changed, labelOf, on, selectedPart, state } from "./state.js";

export function preparePart() {
  on("labels", drawLabel);
  on("selected", drawPart);
  on("details", drawVerdict);
  $("heat").addEventListener("input", showHeat);
  $("outlines").addEventListener("change", showHeat);
  $("label-good").addEventListener("click", () => label("good"));
  $("label-defect").addEventListener("click", () => label("defect"));
  $("note").addEventListener("change", () => {
    const part = selectedPart();
    const known = part && labelOf(part);
    if (known && known.note !== $("note").value) label(known.label);
  });
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

async function drawPart() {
  const part = selectedPart();
  $("welcome").hidden = Boolean(part);
  $("shown").hidden = !part;
  $("verdict").hidden = !part;
  $("evidence").hidden = !part;
  $("view-inspect").classList.toggle("has-part", Boolean(part));
  if (!part) return;
  const [tall, wide] = part.size;
  $("layers").style.aspectRatio = `${wide} / ${tall}`;
  $("mat").style.setProperty("--ratio", String(wide / tall));
  $("mat").classList.toggle("flat", wide > 1.8 * tall);
  const told = `${part.part || part.name}: ${word(part.verdict).toLowerCase()}, score ${num(part.score)}`;
  $("layer-image").alt = told;
  $("caption").textContent = told;
  drawVerdict();
  drawLabel();
  drawEvidence(part);
  announce(told);
  const still = () => state.selected === part.id;
  for (const [id, path] of [
    ["layer-image", `/v1/parts/${part.id}/image.jpg`],
    ["layer-heat", `/v1/parts/${part.id}/heatmap.png?style=layer`],
    ["layer-outline", `/v1/parts/${part.id}/heatmap.png?style=outline`],
  ]) {
    $(id).classList.add("coming");
    picture(path).then(
      (url) => {
        if (!still()) return;
        $(id).src = url;
        $(id).classList.remove("coming");
      },
      () => still() && id === "layer-image" && toast("The picture is no longer kept by the service.", "bad"),
    );
  }
}

function drawVerdict() {
  const part = selectedPart();
  if (!part) return;
  const scores = state.details?.name === part.model ? state.details.calibration_scores : [];
  $("verdict").dataset.kind = kind(part.verdict);
  $("glyph").replaceChildren(glyph(part.verdict, 46));
  $("verdict-word").textContent = word(part.verdict);
  $("verdict-times").textContent = part.threshold
    ? `${(part.score / part.threshold).toFixed(2)} × the threshold`
    : "the model has no threshold";
  $("badge").dataset.kind = kind(part.verdict);
  $("badge").replaceChildren(
    glyph(part.verdict, 20),
    ` ${word(part.verdict)} `,
    h("span", { class: "n" }, num(part.score)),
  );
  $("gauge").replaceChildren(gauge(part, scores));
  $("meaning").textContent = meaning(part, scores);
  const ms = 1000 * Object.values(part.seconds).reduce((sum, one) => sum + one, 0);
  const facts = [
    ["Part", part.part || part.name],
    ...(part.defect ? [["Defect", `${part.defect} (${percent(part.regions[0].sure)} sure)`]] : []),
    ["When", clock(part.at)],
    ["Size", `${part.size[1]} × ${part.size[0]} px`],
    ["Took", `${ms.toFixed(0)} ms`],
    ["Model", `${part.model} · ${part.sha256.slice(0, 8)}`],
  ];
  $("facts").replaceChildren(...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
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
  $("evidence-note").textContent = "looking …";
  later = setTimeout(async () => {
    try {
      const evidence = await json(`/v1/parts/${part.id}/evidence.json`);
      if (state.selected !== part.id) return;
      showEvidence(part, evidence);
    } catch (error) {
      if (state.selected === part.id) $("evidence-note").textContent = error.message;
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

export async function label(wanted) {
  const part = selectedPart();
  if (!part) return;
  const known = labelOf(part);
  try {
    if (known && known.label === wanted && known.note === $("note").value) {
      await json(`/v1/inbox/${known.id}`, { method: "DELETE" });
      state.labels = state.labels.filter((one) => one.id !== known.id);
    } else {
      const entry = await json("/v1/inbox", {
        method: "POST",
        body: { id: part.id, label: wanted, who: state.who, note: $("note").value },
      });
      state.labels = [entry, ...state.labels.filter((one) => one.id !== entry.id)];
    }
    changed("labels");
    announce(labelOf(part) ? `labelled as ${wanted === "good" ? "a good part" : "a defect"}` : "label removed");
  } catch (error) {
    toast(error.message, "bad");
  }
}

function drawLabel() {
  const part = selectedPart();
  if (!part) return;
  const known = labelOf(part);
  $("label-good").setAttribute("aria-pressed", String(known?.label === "good"));
  $("label-defect").setAttribute("aria-pressed", String(known?.label === "defect"));
  if (document.activeElement !== $("note")) $("note").value = known?.note ?? "";
  const disagrees = known && (known.label === "good") !== (part.verdict !== "rejected");
  $("said").textContent = !known
    ? "Labels teach the model: see Learn."
    : `Kept${known.who ? ` by ${known.who}` : ""}, ${clock(known.at)}.${disagrees ? " The model sees it otherwise: see Learn." : ""}`;
}
