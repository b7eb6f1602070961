// A change of the model: made in the background, shown on every labelled part, then accepted or discarded.

import { json, lazily } from "./api.js";
import { announce, clipped, dialog, glyph, h, num, percent, toast, word } from "./dom.js";
import { loadModel, loadModels, state } from "./state.js";

const PHASES = {
  extract: "reading the images",
  moments: "measuring how good parts vary",
  bank: "choosing what to remember",
  select: "choosing what to remember",
  calibrate: "calibrating",
  teach: "looking at the defects",
  score: "trying it on every labelled part",
};
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// resolves with true if the change was accepted
export async function propose(title, asked) {
  const bar = h("progress", { "aria-label": title });
  const phase = h("p", { class: "muted" }, "beginning …");
  const content = h("div", { class: "proposal" }, bar, phase);
  const shown = dialog(title, content, [["Discard", "discard"]], { class: "wide" });
  let accepting = Promise.resolve(false);
  let over = false;
  shown.closed.then(() => (over = true));
  try {
    const body = { ...asked, who: state.who };
    let job = await json(`/v1/models/${encodeURIComponent(state.model)}/preview`, { method: "POST", body });
    while (!over && (job.state === "queued" || job.state === "running")) {
      await pause(150);
      job = await json(`/v1/jobs/${job.id}`);
      const { phase: name, done, total } = job.progress;
      if (total) [bar.max, bar.value] = [total, done];
      phase.textContent = `${PHASES[name] ?? "beginning"} …`;
    }
    if (!over && job.state !== "ready") throw new Error(job.error || ENDED);
    if (!over) showPreview(shown, content, job.preview, () => (accepting = accept(job, shown, content)));
    await shown.closed;
    if (!(await accepting)) {
      await json(`/v1/jobs/${job.id}/discard`, { method: "POST" });
      return false;
    }
    await loadModels();
    await loadModel();
    toast("The model is changed, and the new one is in use. The former one is kept: see Model.", "good");
    return true;
  } catch (error) {
    shown.close("");
    toast(error.message, "bad");
    return false;
  }
}

const ENDED = "Somebody else has asked for a change of this model meanwhile, and this preview has ended. Ask again.";

// what cannot be accepted now is told where it was asked for, and can be tried again
async function accept(job, shown, content) {
  const button = shown.row.querySelector("button");
  button.disabled = true;
  try {
    await json(`/v1/jobs/${job.id}/accept`, { method: "POST" });
    shown.close("accept");
    return true;
  } catch (error) {
    const ended = await json(`/v1/jobs/${job.id}`).then(
      (now) => now.state === "discarded",
      () => false,
    );
    content.querySelector(".failed")?.remove();
    content.prepend(h("p", { class: "banner bad failed", role: "alert" }, ended ? ENDED : error.message));
    button.disabled = ended;
    return false;
  }
}

function showPreview(shown, content, preview, accepted) {
  const { good, defects, lost, effects } = preview;
  const moved = effects.filter((one) => one.before.verdict !== one.after.verdict).length;
  const tile = (name, before, after, note) =>
    h(
      "div",
      { class: "tile" },
      h("span", { class: "tile-name" }, name),
      h("span", { class: "tile-value" }, h("span", { class: "was" }, before), " → ", after),
      h("span", { class: "tile-note" }, note),
    );
  const tiles = h(
    "div",
    { class: "tiles three" },
    tile(
      "Threshold",
      num(preview.threshold_before),
      num(preview.threshold_after),
      `about ${percent(preview.rate_after)} of good parts exceed it`,
    ),
    tile("Good parts that pass", good.right_before, good.right_after, `of ${good.parts} labelled`),
    tile("Defects caught", defects.right_before, defects.right_after, `of ${defects.parts} labelled`),
  );
  const notes = [
    ...(lost.length
      ? [
          h(
            "p",
            { class: "banner bad" },
            glyph("rejected", 18),
            ` ${lost.length === 1 ? "A labelled defect" : `${lost.length} labelled defects`} would no longer be caught.`,
          ),
        ]
      : []),
    ...(!defects.parts
      ? [
          h(
            "p",
            { class: "banner" },
            "No defects are labelled yet, so nobody can say whether they would still be caught.",
          ),
        ]
      : []),
    ...preview.warnings.map((text) => h("p", { class: "banner" }, text)),
  ];
  content.replaceChildren(tiles, ...notes, ...(effects.length ? [table(effects)] : []));
  shown.row.prepend(h("button", { type: "button", class: "primary", onclick: accepted }, "Accept"));
  shown.row.querySelector("button").focus();
  announce(`Preview is ready: ${moved} verdicts change, ${lost.length} defects would be lost`);
}

function table(effects) {
  const outcome = ({ score, verdict }) =>
    h(
      "span",
      { class: "outcome" },
      glyph(verdict, 16),
      h("span", { class: "word" }, word(verdict)),
      h("span", { class: "n" }, num(score)),
    );
  const sorted = [...effects].sort(
    (a, b) => (a.before.verdict === a.after.verdict) - (b.before.verdict === b.after.verdict),
  );
  const row = (one) => {
    const thumb = h("img", { alt: "", width: 36, height: 36 });
    lazily(thumb, `/v1/inbox/${one.id}/image.jpg?longest=120`);
    const changes = one.before.verdict !== one.after.verdict;
    return h(
      "tr",
      { class: changes ? "changes" : "" },
      h("td", {}, thumb),
      h(
        "th",
        { scope: "row" },
        h("span", { class: "name" }, clipped(one.part || one.name)),
        h("span", { class: `tag ${one.label}` }, one.label),
        one.learnt && h("span", { class: "tag" }, "learnt"),
      ),
      h("td", {}, outcome(one.before)),
      h("td", {}, outcome(one.after), changes && h("span", { class: "hidden" }, " (changes)")),
    );
  };
  const head = ["Picture", "Part", "Now", "Then"].map((name, i) =>
    h("th", { scope: "col" }, i ? name : h("span", { class: "hidden" }, name)),
  );
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Every labelled part" },
    h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, sorted.map(row))),
  );
}
