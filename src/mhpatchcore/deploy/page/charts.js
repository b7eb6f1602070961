// Drawings of scores, in SVG: the gauge of one part, and the histogram of a model.

import { kind, num, s } from "./dom.js";

const WIDE = 360;

// a smooth hill over the scores of good parts, at n places between low and high, 1 at its top
function hill(scores, low, high, n) {
  const mean = scores.reduce((sum, one) => sum + one, 0) / scores.length;
  const spread = Math.sqrt(scores.reduce((sum, one) => sum + (one - mean) ** 2, 0) / scores.length);
  const width = Math.max(1.06 * spread * scores.length ** -0.2, (high - low) / 200);
  const places = Array.from({ length: n }, (_, i) => low + ((high - low) * i) / (n - 1));
  const heights = places.map((place) =>
    scores.reduce((sum, one) => sum + Math.exp(-0.5 * ((place - one) / width) ** 2), 0),
  );
  const top = Math.max(...heights, 1e-9);
  return places.map((place, i) => [place, heights[i] / top]);
}

// where the interesting part of the axis lies: all good parts, and twice the threshold
export function range(scores, threshold) {
  const least = scores[0] ?? 0;
  const most = Math.max(scores.at(-1) ?? 0, 2 * (threshold ?? 0), 1e-6);
  return [Math.max(0, least - 0.15 * (most - least)), most];
}

export function gauge(part, scores) {
  const { score, threshold } = part;
  const [low, high] = threshold === null && !scores.length ? [0, 2 * score || 1] : range(scores, threshold);
  const margin = 14;
  const x = (value) => margin + ((Math.min(Math.max(value, low), high) - low) / (high - low)) * (WIDE - 2 * margin);
  const base = 92;
  const beyond = score > high;
  const end = beyond ? WIDE - margin - 4 : x(score);
  const parts = [];
  if (scores.length > 1) {
    const points = hill(scores, low, high, 90).map(
      ([place, tall]) => `${x(place).toFixed(1)} ${(base - 6 - 52 * tall).toFixed(1)}`,
    );
    parts.push(s("path", { class: "hill", d: `M${x(low)} ${base - 6}L${points.join("L")}L${x(high)} ${base - 6}Z` }));
  }
  const limit = threshold === null ? null : x(threshold);
  parts.push(
    s("rect", {
      class: "track pass",
      x: margin,
      y: base - 4,
      width: (limit ?? WIDE - margin) - margin,
      height: 8,
      rx: 4,
    }),
  );
  if (limit !== null) {
    parts.push(
      s("rect", { class: "track reject", x: limit, y: base - 4, width: WIDE - margin - limit, height: 8, rx: 4 }),
      s("line", { class: "limit", x1: limit, x2: limit, y1: 30, y2: base + 10 }),
      s(
        "text",
        { class: "tick", x: Math.min(Math.max(limit, 62), WIDE - 62), y: base + 26, "text-anchor": "middle" },
        `threshold ${num(threshold)}`,
      ),
    );
  }
  const told = beyond ? `${num(score)} ▸` : num(score);
  parts.push(
    s("line", { class: `stem ${kind(part.verdict)}`, x1: end, x2: end, y1: 27, y2: base }),
    s("circle", { class: `marker ${kind(part.verdict)}`, cx: end, cy: base, r: 8 }),
    s("text", { class: "value", x: Math.min(Math.max(end, 32), WIDE - 36), y: 19, "text-anchor": "middle" }, told),
  );
  const words = `Score ${num(score)}` + (threshold === null ? ", no threshold" : `, threshold ${num(threshold)}`);
  return s("svg", { viewBox: `0 0 ${WIDE} 122`, role: "img", "aria-label": words }, parts);
}

const BINS = 44; // across the histogram

export function histogram(calibration, recent, threshold, small) {
  const [wide, tall] = small ? [380, 230] : [720, 270];
  const [left, bottom, top] = [10, 34, 30];
  const all = [...calibration, ...recent].sort((a, b) => a - b);
  const [low, high] = range(all.length ? calibration : [0, 1], threshold);
  const most = Math.max(high, ...(recent.length ? [Math.min(Math.max(...recent), 1.5 * high)] : []));
  const x = (value) => left + ((Math.min(Math.max(value, low), most) - low) / (most - low)) * (wide - 2 * left);
  const shares = (scores) => {
    const counts = new Array(BINS).fill(0);
    for (const one of scores)
      counts[Math.min(BINS - 1, Math.max(0, Math.floor(((one - low) / (most - low)) * BINS)))] += 1;
    return counts.map((count) => count / Math.max(1, scores.length));
  };
  const [known, new_] = [shares(calibration), shares(recent)];
  const highest = Math.max(...known, ...new_, 1e-9);
  const y = (share) => tall - bottom - (share / highest) * (tall - bottom - top);
  const step = (wide - 2 * left) / BINS;
  const steps = known.map(
    (share, i) => `H${(left + i * step).toFixed(1)}V${y(share).toFixed(1)}H${(left + (i + 1) * step).toFixed(1)}`,
  );
  const limit = threshold === null ? null : x(threshold);
  const bars = new_.map((share, i) => {
    const middle = low + ((i + 0.5) / BINS) * (most - low);
    const over = threshold !== null && middle > threshold;
    return (
      share &&
      s("rect", {
        class: `bar ${over ? "over" : "under"}`,
        x: left + i * step + 1,
        y: y(share),
        width: step - 2,
        height: tall - bottom - y(share),
        rx: 1.5,
      })
    );
  });
  const beyond = recent.some((one) => one > most) ? " and more" : ""; // the last bar has all of these
  const places = beyond ? [0, 0.25, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]; // the words need the room of a number
  const last = places.length - 1;
  const ticks = places.map((share) => low + share * (most - low));
  return s(
    "svg",
    {
      viewBox: `0 0 ${wide} ${tall}`,
      role: "img",
      "aria-label": `Scores of ${calibration.length} good parts and of the last ${recent.length} parts; threshold ${num(threshold)}`,
    },
    bars,
    s("path", { class: "steps", d: `M${left} ${tall - bottom}${steps.join("")}V${tall - bottom}` }),
    s("line", { class: "axis", x1: left, x2: wide - left, y1: tall - bottom, y2: tall - bottom }),
    ticks.map((value, i) =>
      s(
        "text",
        { class: "tick", x: x(value), y: tall - 12, "text-anchor": i === 0 ? "start" : i === last ? "end" : "middle" },
        num(value) + (i === last ? beyond : ""),
      ),
    ),
    limit !== null && s("line", { class: "limit", x1: limit, x2: limit, y1: 22, y2: tall - bottom }),
    limit !== null &&
      s(
        "text",
        { class: "value", x: Math.min(Math.max(limit, 70), wide - 70), y: 14, "text-anchor": "middle" },
        `threshold ${num(threshold)}`,
      ),
  );
}
