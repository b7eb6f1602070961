// Images come in: dropped, pasted, picked, a folder, a photo. They are scored a few at a time.

import { ApiError, json } from "./api.js";
import { $, clipped, counted, toast } from "./dom.js";
import { addParts, select, state } from "./state.js";
import { follow } from "./strip.js";

const SUFFIX = /\.(png|jpe?g|bmp|tiff?|webp|pgm|ppm|gif|jp2|avif)$/i;
const AT_ONCE = 3;
const isImage = (file) => file.type.startsWith("image/") || SUFFIX.test(file.name);

let waiting = [];
let under_way = 0;
let [done, total] = [0, 0];

export function prepareIntake() {
  for (const kind of ["files", "folder", "photo"]) {
    const input = $(`pick-${kind}`);
    input.addEventListener("change", () => {
      take([...input.files]);
      input.value = "";
    });
    for (const button of document.querySelectorAll(`[data-pick=${kind}]`))
      button.addEventListener("click", () => input.click());
  }
  let depth = 0;
  const over = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => {
    if (!over(event)) return;
    depth += 1;
    $("drop").hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (!over(event)) return;
    depth = Math.max(0, depth - 1);
    $("drop").hidden = depth === 0;
  });
  addEventListener("dragover", (event) => over(event) && event.preventDefault());
  addEventListener("drop", async (event) => {
    if (!over(event)) return;
    event.preventDefault();
    depth = 0;
    $("drop").hidden = true;
    take(await dropped(event.dataTransfer));
  });
  addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length)
      take(
        files.map((file) =>
          file.name === "image.png" ? new File([file], `pasted ${stamp()}.png`, { type: file.type }) : file,
        ),
      );
  });
}

const stamp = () => new Date().toTimeString().slice(0, 8).replaceAll(":", "-");

// the files of a drop, those in folders too
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.some((entry) => entry.isDirectory)) return [...transfer.files];
  const found = [];
  const walk = async (entry) => {
    if (entry.isFile) {
      found.push(await new Promise((resolve, reject) => entry.file(resolve, reject)));
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) return;
      for (const one of some) await walk(one);
    }
  };
  for (const entry of entries) await walk(entry);
  return found;
}

export function take(files) {
  const images = files.filter((file) => isImage(file) && !file.name.startsWith("."));
  if (!images.length) {
    if (files.length) toast("There is no image among these files.", "bad");
    return;
  }
  if (location.hash !== "" && location.hash !== "#inspect") location.hash = "#inspect";
  images.sort((a, b) =>
    (a.webkitRelativePath || a.name).localeCompare(b.webkitRelativePath || b.name, undefined, { numeric: true }),
  );
  const batch = { model: state.model, is_shown: false };
  waiting.push(...images.map((file) => ({ file, batch })));
  total += images.length;
  progress();
  while (under_way < AT_ONCE && waiting.length) work();
}

async function work() {
  under_way += 1;
  for (let next; (next = waiting.shift()); progress()) {
    await score(next);
    done += 1;
  }
  under_way -= 1;
  if (under_way === 0 && !waiting.length) {
    [done, total] = [0, 0];
    progress();
  }
}

// what somebody tries out is no production: it counts neither in rates nor in alarms
async function score({ file, batch }) {
  const query = new URLSearchParams({ name: file.webkitRelativePath || file.name, map: "none", trial: "true" });
  const type = file.type.startsWith("image/") ? file.type : "application/octet-stream";
  for (;;) {
    try {
      const path = `/v1/models/${encodeURIComponent(batch.model)}/score?${query}`;
      const { results } = await json(path, { method: "POST", body: file, headers: { "Content-Type": type } });
      tried(results, batch);
      return;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status !== 429) {
        toast(`${clipped(file.name)}: ${error.message}`, "bad");
        tried(error.results, batch);
        return;
      }
      await new Promise((resolve) => setTimeout(resolve, 1000 * Math.min(error.retry || 1, 5)));
    }
  }
}

// the first of what somebody has brought is shown, and stays
function tried(results, batch) {
  addParts(results.map((one) => ({ ...one, trial: true })));
  if (batch.is_shown || !results.length || batch.model !== state.model) return;
  batch.is_shown = true;
  follow(false);
  select(results[0].id);
}

function progress() {
  $("progress").hidden = total < 2;
  $("progress-bar").max = Math.max(total, 1);
  $("progress-bar").value = done;
  $("progress-text").textContent = `${done} of ${counted(total, "image")}`;
}
