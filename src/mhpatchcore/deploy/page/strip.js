// The strip of the last parts: filter, sort, follow, move by keys, and write as CSV.

import { lazily } from "./api.js";
import { $, announce, clock, counted, glyph, h, kind, num, word } from "./dom.js";
import { changed, labelOf, newer, on, select, shownParts, state } from "./state.js";

const MOST_SHOWN = 300;
const rows = new Map(); // by the part's id
let drawing = false;

export function prepareStrip() {
  for (const what of ["parts", "labels", "selected"]) on(what, drawSoon);
  $("sort").addEventListener("change", (event) => {
    state.sort = event.target.value;
    changed("parts");
  });
  for (const button of document.querySelectorAll("[data-filter]")) {
    button.addEventListener("click", () => {
      state.filter = button.dataset.filter;
      for (const other of document.querySelectorAll("[data-filter]"))
        other.setAttribute("aria-pressed", String(other === button));
      changed("parts");
    });
  }
  $("follow").addEventListener("click", () => follow(!state.follow));
  $("held-follow").addEventListener("click", () => follow(true));
  for (const press of ["pointerdown", "click"]) $("view-inspect").addEventListener(press, touched, true);
  addEventListener("keydown", (event) => $("view-inspect").hidden || touched(event), true);
  $("strip").addEventListener("wheel", touched, { passive: true });
  $("csv").addEventListener("click", exportCsv);
  $("strip").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    move(step);
  });
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
  if (state.follow && !wanted) state.held_at = state.parts[0]?.at ?? "";
  state.follow = wanted;
  $("follow").setAttribute("aria-pressed", String(wanted));
  if (wanted && shownParts().length) select(shownParts()[0].id, true);
  drawHeld();
}

// who presses a key or touches the view means the part that is there: it stays
function touched(event) {
  if (event.type === "click" && event.detail) return; // its press has been noticed
  if (event.ctrlKey || event.metaKey || event.altKey || /^(Shift|Control|Alt|Meta|F\d+)$/.test(event.key)) return;
  state.touched_at = event.timeStamp;
  if (event.key !== "f" && !event.target.closest?.("#follow, #held-follow") && state.follow) follow(false);
}

// a part that has just been scored is shown, unless somebody looks at another; where many come, one now and then, as
// nobody can look at more, and every look costs the service pictures
const PACE = 1500; // milliseconds
let [shown_at, coming] = [0, 0];

export function followed(id) {
  if (state.selected && !state.follow) return;
  clearTimeout(coming);
  const show = () => {
    if (id === state.selected || (state.selected && !state.follow)) return;
    shown_at = performance.now();
    select(id, true);
  };
  const wait = shown_at + PACE - performance.now();
  if (wait <= 0) show();
  else coming = setTimeout(show, wait);
}

function drawHeld() {
  const n = state.follow ? 0 : newer();
  $("held").hidden = n === 0;
  $("held-text").textContent = `The line has gone on: ${counted(n, "newer part")}.`;
}

function drawSoon() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    drawStrip();
  });
}

function drawStrip() {
  drawHeld();
  const shown = shownParts().slice(0, MOST_SHOWN);
  const all = state.parts.filter((one) => one.model === state.model);
  $("strip-empty").hidden = shown.length > 0;
  $("strip-empty").textContent = all.length
    ? "None of the last parts is of this kind."
    : "Parts appear here as they are scored: dropped on this page, sent to the service, or found by watch.";
  $("strip").hidden = shown.length === 0;
  const wanted = new Set(shown.map((one) => one.id));
  for (const [id, row] of rows) {
    if (wanted.has(id)) continue;
    row.remove();
    rows.delete(id);
  }
  $("strip").replaceChildren(...shown.map(rowOf));
  if (state.follow) $("strip").scrollTo(0, 0); // the part that is followed stands first
  const chosen = rows.get(state.selected);
  if (chosen) $("strip").setAttribute("aria-activedescendant", chosen.id);
  else $("strip").removeAttribute("aria-activedescendant");
}

function rowOf(part) {
  let row = rows.get(part.id);
  if (!row) {
    const thumb = h("img", { alt: "", width: 52, height: 52 });
    const share = part.threshold ? Math.min(part.score / (2 * part.threshold), 1) : 0;
    row = h(
      "div",
      {
        role: "option",
        class: `part ${kind(part.verdict)}`,
        id: `part-${part.id}`,
        onclick: () => (follow(false), select(part.id)),
      },
      thumb,
      h(
        "span",
        { class: "part-text" },
        h("span", { class: "part-name" }, part.part || part.name),
        h(
          "span",
          { class: "part-facts" },
          glyph(part.verdict, 15),
          ` ${word(part.verdict)} `,
          h("span", { class: "part-trial" }),
          h("span", { class: "part-time" }, clock(part.at)),
        ),
        part.reason
          ? h("span", { class: "part-reason", title: part.reason }, part.reason)
          : h("span", { class: "part-bar", css: { "--share": share } }),
      ),
      h("span", { class: "part-score" }, num(part.score)),
      h("span", { class: "part-label" }),
    );
    rows.set(part.id, row);
    if (part.size) lazily(thumb, `/v1/parts/${part.id}/image.jpg?longest=120`);
    else thumb.replaceWith(h("span", { class: "no-thumb", "aria-hidden": "true" }, "no picture"));
  }
  row.setAttribute("aria-selected", String(part.id === state.selected));
  const known = labelOf(part);
  row.querySelector(".part-trial").textContent = part.trial ? "trial" : "";
  const tag = row.querySelector(".part-label");
  tag.textContent = known ? { good: "good", defect: "defect" }[known.label] : "";
  tag.className = `part-label ${known?.label ?? ""}`;
  return row;
}

const COLUMNS = [
  "id",
  "at",
  "part",
  "name",
  "model",
  "score",
  "threshold",
  "p_value",
  "verdict",
  "reason",
  "trial",
  "label",
  "note",
  "sha256",
];

export function csv(parts) {
  const cell = (value) => {
    let text = value === null || value === undefined ? "" : String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`; // a spreadsheet would run it
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
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
  const link = h("a", {
    href: url,
    download: `${state.model}-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.csv`,
  });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  announce(`${counted(parts.length, "part")} written as CSV`);
}
