// A closer look: the picture three times as large, moved by the pointer or by touch.

import { picture } from "./api.js";
import { $ } from "./dom.js";
import { on, selectedPart } from "./state.js";

const LONGEST = 4096; // pixels, of the picture that is fetched for it
let closer = null; // the part that is looked at

export function prepareZoom() {
  $("zoom").addEventListener("click", () => zoom());
  $("layers").addEventListener("click", (event) => zoom(event));
  $("layers").addEventListener("pointermove", (event) => isZoomed() && aim(event));
  // told for the same part too, when the list is fetched anew
  on("selected", () => isZoomed() && selectedPart()?.id !== closer && zoom());
}

const isZoomed = () => $("layers").classList.contains("zoomed");

export function zoom(event) {
  const part = selectedPart();
  const now = $("layers").classList.toggle("zoomed", !isZoomed() && Boolean(part?.size));
  $("zoom").setAttribute("aria-pressed", String(now));
  closer = part?.id;
  if (!now || !part) return;
  aim(event ?? peak(part));
  if (Math.max(...part.size) > 1200) {
    picture(`/v1/parts/${part.id}/image.jpg?longest=${LONGEST}`).then(
      (url) => selectedPart() === part && ($("layer-image").src = url),
      () => {},
    );
  }
}

function aim({ clientX, clientY }) {
  const { left, top, width, height } = $("layers").getBoundingClientRect();
  $("canvas").style.transformOrigin = `${(100 * (clientX - left)) / width}% ${(100 * (clientY - top)) / height}%`;
}

// without a pointer: the most unusual place, or the middle
function peak(part) {
  const { left, top, width, height } = $("layers").getBoundingClientRect();
  const [row, column] = part.regions[0]?.peak_at ?? [part.size[0] / 2, part.size[1] / 2];
  return { clientX: left + (width * column) / part.size[1], clientY: top + (height * row) / part.size[0] };
}
