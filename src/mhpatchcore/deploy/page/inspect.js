// The parts, one after the other: the strip, the picture with its heat, the verdict, the evidence, the label.

import { json, picture } from "./api.js";
import { gauge } from "./charts.js";
import { $, announce, clock, counted, glyph, h, kind, num, percent, toast, word } from "./dom.js";
import { changed, labelOf, on, select, selectedPart, shownParts, state } from "./state.js";

const MOST_SHOWN = 300;
const rows = new Map(); // of the strip, by the part's id
let drawing = false;

export function prepareInspect() {
  on("parts", drawSoon);
  on("labels", () => {
    drawSoon();
    drawLabel();
  });
  on("selected", () => {
    drawSoon();
    drawPart();
  });
  on("details", drawVerdict);
  $("sort").addEventListener("change", (event) => {
    state.sort = event.target.value;
    changed("parts");
  });
  for (const button of document.querySelectorAll("[data-filter]")) {
    button.addEventListener("click", () => {
      state.filter = button.dataset.filter;
      for (const other of document.querySelectorAll("[data-filter]")) other.setAttribute("aria-pressed", String(other === button));
      changed("parts");
    });
  }
  $("follow").addEventListener("click", () => follow(!state.follow));
  $("csv").addEventListener("click", exportCsv);
  $("heat").addEventListener("input", showHeat);
  $("outlines").addEventListener("change", showHeat);
  $("label-good").addEventListener("click", () => label("good"));
  $("label-defect").addEventListener("click", () => label("defect"));
  $("note").addEventListener("change", () => {
    const part = selectedPart();
    const known = part && labelOf(part);
    if (known && known.note !== $("note").value) label(known.label);
  });
  $("strip").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    move(step);
  });
  showHeat();
}

export function move(step) {
  const shown = shownParts();
  if (!shown.length) return;
  const at = shown.findIndex((one) => one.id === state.selected);
  const next = shown[Math.min(Math.max(at + step, 0), shown.length - 1)];
  follow(false);
  select(next.id);
  rows.get(next.id)?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

export function follow(wanted) {
  state.follow = wanted;
  $("follow").setAttribute("aria-pressed", String(wanted));
  if (wanted && shownParts().length) select(shownParts()[0].id);
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

// ---- the strip

const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    picture(target.dataset.path).then((url) => (target.src = url), () => target.classList.add("lost"));
  }
});

function drawSoon() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    drawStrip();
  });
}

function drawStrip() {
  const shown = shownParts().slice(0, MOST_SHOWN);
  const all = state.parts.filter((one) => one.model === state.model);
  $("strip-empty").hidden = shown.length > 0;
  $("strip-empty").textContent = all.length
    ? "None of the last parts is of this kind."
    : "Parts appear here as they are scored: dropped on this page, sent to the service, or found by watch.";
  $("strip").hidden = shown.length === 0;
  const rejected = all.filter((one) => one.verdict === "anomalous").length;
  const counts = { all: all.length, anomalous: rejected, normal: all.filter((one) => one.verdict === "normal").length };
  for (const button of document.querySelectorAll("[data-filter]")) button.dataset.count = counts[button.dataset.filter];
  const wanted = new Set(shown.map((one) => one.id));
  for (const [id, row] of rows) {
    if (wanted.has(id)) continue;
    row.remove();
    rows.delete(id);
  }
  $("strip").replaceChildren(...shown.map(rowOf));
  const chosen = rows.get(state.selected);
  if (chosen) $("strip").setAttribute("aria-activedescendant", chosen.id);
  else $("strip").removeAttribute("aria-activedescendant");
}

function rowOf(part) {
  let row = rows.get(part.id);
  if (!row) {
    const thumb = h("img", { alt: "", loading: "lazy", width: 52, height: 52 });
    thumb.dataset.path = `/v1/parts/${part.id}/image.jpg?longest=120`;
    const share = part.threshold ? Math.min(part.score / (2 * part.threshold), 1) : 0;
    row = h(
      "div",
      { role: "option", class: `part ${kind(part.verdict)}`, id: `part-${part.id}`, onclick: () => (follow(false), select(part.id)) },
      thumb,
      h(
        "span",
        { class: "part-text" },
        h("span", { class: "part-name" }, part.part || part.name),
        h("span", { class: "part-facts" }, glyph(part.verdict, 15), ` ${word(part.verdict)} `, h("span", { class: "part-time" }, clock(part.at))),
        h("span", { class: "part-bar", css: { "--share": share } }),
      ),
      h("span", { class: "part-score" }, num(part.score)),
      h("span", { class: "part-label" }),
    );
    rows.set(part.id, row);
    seen.observe(thumb);
  }
  row.setAttribute("aria-selected", String(part.id === state.selected));
  const known = labelOf(part);
  const tag = row.querySelector(".part-label");
  tag.textContent = known ? { good: "good", defect: "defect" }[known.label] : "";
  tag.className = `part-label ${known?.label ?? ""}`;
  return row;
}

// ---- one part

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
  $("verdict-times").textContent = part.threshold ? `${(part.score / part.threshold).toFixed(2)} × the threshold` : "the model has no threshold";
  $("badge").dataset.kind = kind(part.verdict);
  $("badge").replaceChildren(glyph(part.verdict, 20), ` ${word(part.verdict)} `, h("span", { class: "n" }, num(part.score)));
  $("gauge").replaceChildren(gauge(part, scores));
  $("meaning").textContent = meaning(part, scores);
  const ms = 1000 * Object.values(part.seconds).reduce((sum, one) => sum + one, 0);
  const facts = [
    ["Part", part.part || part.name],
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
  const where = places ? ` ${counted(places, "place")} ${places === 1 ? "stands" : "stand"} out, ${percent(area)} of the image.` : "";
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
  $("evidence-note").textContent = found ? "The most unusual places, and the normal patches nearest to them" : "The training images are not on this machine, so only distances are shown";
  $("places").replaceChildren(...evidence.places.map((place, i) => placeOf(place, i, evidence.pixel_threshold)));
  const [tall, wide] = part.size;
  $("boxes").replaceChildren(
    ...evidence.places.map(({ box: [top, left, bottom, right] }, i) =>
      h("span", {
        class: "box",
        css: { left: `${(100 * left) / wide}%`, top: `${(100 * top) / tall}%`, width: `${(100 * (right - left)) / wide}%`, height: `${(100 * (bottom - top)) / tall}%` },
      }, String(i + 1)),
    ),
  );
}

function placeOf(place, i, threshold) {
  const times = threshold ? `${(place.score / threshold).toFixed(1)} × the pixel threshold` : "";
  const layers = place.layers.map((one) => `${Math.round(100 * one.share)}\u202f% at ${one.stride}\u202fpx`).join(", ");
  const crop = (src, title, note, own) =>
    h("figure", { class: own ? "crop own" : "crop" }, src ? h("img", { src, alt: title, width: 160, height: 160 }) : h("div", { class: "no-crop" }, "no picture"), h("figcaption", {}, h("b", {}, own ? title : shortened(title)), h("span", {}, note)));
  return h(
    "article",
    { class: "place", "aria-label": `Place ${i + 1}` },
    crop(place.picture, `${i + 1} · this part`, times || num(place.score), true),
    h("span", { class: "against", "aria-hidden": "true" }, "≠"),
    place.nearest.map((patch) => crop(patch.picture, patch.image ?? "an average", `distance ${num(patch.distance)}`, false)),
    h("p", { class: "muted layers-note" }, `Of the difference: ${layers}`),
  );
}

const shortened = (name) => (name.length > 22 ? `…${name.slice(-21)}` : name);

// ---- labels

export async function label(wanted) {
  const part = selectedPart();
  if (!part) return;
  const known = labelOf(part);
  try {
    if (known && known.label === wanted && known.note === $("note").value) {
      await json(`/v1/inbox/${known.id}`, { method: "DELETE" });
      state.labels = state.labels.filter((one) => one.id !== known.id);
    } else {
      const entry = await json("/v1/inbox", { method: "POST", body: { id: part.id, label: wanted, who: state.who, note: $("note").value } });
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
  const disagrees = known && (known.label === "good") !== (part.verdict !== "anomalous");
  $("said").textContent = !known
    ? "Labels teach the model: see Learn."
    : `Kept${known.who ? ` by ${known.who}` : ""}, ${clock(known.at)}.${disagrees ? " The model sees it otherwise: see Learn." : ""}`;
}

// ---- CSV

const COLUMNS = ["id", "at", "part", "name", "model", "score", "threshold", "p_value", "verdict", "label", "note", "sha256"];

export function csv(parts) {
  const cell = (value) => {
    let text = value === null || value === undefined ? "" : String(value);
    if (typeof value === "string" && /^[=+\-@\t]/.test(text)) text = `'${text}`; // a spreadsheet would run it
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const line = (part) => {
    const known = labelOf(part);
    const row = { ...part, label: known?.label ?? "", note: known?.note ?? "" };
    return COLUMNS.map((name) => cell(row[name])).join(",");
  };
  return [COLUMNS.join(","), ...parts.map(line)].join("\n") + "\n";
}

function exportCsv() {
  const parts = shownParts();
  const url = URL.createObjectURL(new Blob([csv(parts)], { type: "text/csv" }));
  const link = h("a", { href: url, download: `${state.model}-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.csv` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  announce(`${counted(parts.length, "part")} written as CSV`);
}
