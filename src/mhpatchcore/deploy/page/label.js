// What people say of parts. A label is for the part that somebody has looked at, and every label can be taken back.

import { json } from "./api.js";
import { $, announce, clipped, clock, h, toast } from "./dom.js";
import { changed, labelOf, on, select, selectedPart, state } from "./state.js";

const LOOKED = 700; // milliseconds that a picture must have been there, unless somebody has asked for the part
const BOUNCE = 500; // a key that comes again sooner was pressed once
const WORDS = { good: "a good part", defect: "a defect" };
const done = []; // what was said here, the last at the end: the part, its entry, and what had been said before
let seen = { id: null, at: Infinity }; // the part whose picture is there, and since when
let last = { id: null, label: "", at: -Infinity };
let refused = null; // the id of a part that was not labelled because it had only just come
let saying = Promise.resolve(); // one after the other, in the order of the keys

export function prepareLabel() {
  on("labels", draw);
  on("selected", () => {
    refused = null;
    draw();
  });
  for (const one of ["good", "defect"]) $(`label-${one}`).addEventListener("click", () => label(one));
  $("note").addEventListener("change", () => {
    const part = selectedPart();
    const known = part && labelOf(part);
    if (known && noted(part) !== known.note) say(part, known.label, noted(part));
  });
}

// the picture of a part is on the screen from now on
export function shown(id) {
  if (seen.id !== id) seen = { id, at: performance.now() };
}

export const called = (part) => clipped(part.part || part.name);

// what stands in the field, if it was written for this part
const noted = (part) => ($("note").dataset.part === part.id ? $("note").value : "");

export function label(wanted) {
  const part = selectedPart();
  const at = state.touched_at;
  if (!part || part.reason) return;
  const bounces = last.id === part.id && last.label === wanted && at - last.at < BOUNCE;
  last = { id: part.id, label: wanted, at };
  if (bounces) return;
  if (!state.chosen && !(seen.id === part.id && at - seen.at >= LOOKED)) {
    refused = part.id;
    draw();
    announce(`Nothing was labelled: ${called(part)} had only just come`);
    return;
  }
  refused = null;
  say(part, wanted, noted(part));
}

function say(part, wanted, note) {
  saying = saying.then(async () => {
    const before = labelOf(part);
    if (before?.label === wanted && before.note === note) return draw();
    try {
      const entry = await told(part, wanted, note);
      done.push({ part, entry, before });
      changed("labels");
      announce(`${called(part)} is labelled as ${WORDS[wanted]}`);
    } catch (error) {
      toast(`${called(part)} was not labelled: ${error.message}`, "bad");
    }
  });
}

async function told(part, wanted, note) {
  const entry = await json("/v1/inbox", { method: "POST", body: { id: part.id, label: wanted, who: state.who, note } });
  state.labels = [entry, ...state.labels.filter((one) => one.id !== entry.id)];
  return entry;
}

export function undo() {
  saying = saying.then(async () => {
    const { part, entry, before } = done.at(-1) ?? {};
    if (!part) return toast("There is no label to take back.");
    try {
      if (before) await told(part, before.label, before.note);
      else {
        await json(`/v1/inbox/${entry.id}?who=${encodeURIComponent(state.who)}`, { method: "DELETE" });
        state.labels = state.labels.filter((one) => one.id !== entry.id);
      }
      done.pop();
      changed("labels");
      toast(`Taken back: ${called(part)} is ${before ? `${WORDS[before.label]} again` : "no longer labelled"}.`);
    } catch (error) {
      toast(error.message, "bad");
    }
  });
}

function draw() {
  const part = selectedPart();
  if (!part) return;
  const known = labelOf(part);
  for (const one of ["good", "defect"]) $(`label-${one}`).setAttribute("aria-pressed", String(known?.label === one));
  if (document.activeElement !== $("note") || $("note").dataset.part !== part.id) {
    $("note").value = known?.note ?? "";
    $("note").dataset.part = part.id;
  }
  $("labelling").hidden = Boolean(part.reason);
  $("said").classList.toggle("refused", refused === part.id);
  if (refused === part.id) $("said").replaceChildren(...tooSoon(part));
  else $("said").replaceChildren(...saidOf(part, known));
}

function tooSoon(part) {
  const before = state.parts.find((one) => one.id === state.previous);
  const back = before && h("button", { type: "button", class: "small", onclick: () => select(before.id) }, "The one before");
  return [`Nothing was labelled: ${called(part)} had only just come. It stays now: label it, or `, back || "choose another."];
}

function saidOf(part, known) {
  if (!known) return ["Labels teach the model: see Learn."];
  const disagrees = (known.label === "good") !== (part.verdict !== "rejected");
  const said = `${called(part)} is ${WORDS[known.label]}${known.who ? `, says ${known.who}` : ""}, ${clock(known.at)}.`;
  const mine = done.at(-1)?.part.id === part.id;
  const take = h("button", { type: "button", class: "quiet small", id: "undo-label", onclick: undo }, "Undo ", h("kbd", {}, "u"));
  return [`${said}${disagrees ? " The model sees it otherwise: see Learn." : ""} `, ...(mine ? [take] : [])];
}
