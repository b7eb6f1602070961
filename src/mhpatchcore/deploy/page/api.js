// The service's answers: JSON, pictures and the stream of events. A token is asked for when one is needed.

import { dialog, h, onEnter } from "./dom.js";

let token = sessionStorage.getItem("token") ?? "";
let asking = null;

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

let ahead = 0; // milliseconds by which the clock of the service is ahead of this one

// the time by the service's clock, which is also the clock of the parts
export const now = () => Date.now() + ahead;

async function call(path, options = {}) {
  for (;;) {
    const used = token;
    const headers = { ...(used && { Authorization: `Bearer ${used}` }), ...options.headers };
    const response = await fetch(path, { ...options, headers });
    ahead = Date.parse(response.headers.get("Date")) - Date.now() || 0;
    if (response.status !== 401) return response;
    if (used === token) await askToken(used !== "");
  }
}

function askToken(wrong) {
  asking ??= (async () => {
    const field = h("input", { type: "password", autocomplete: "current-password", id: "token", autofocus: true });
    const told = wrong ? "That token is not the right one. " : "";
    const text = h(
      "p",
      {},
      `${told}This service is for those who know its token. It is kept until this tab is closed.`,
    );
    const label = h("label", { class: "field" }, h("span", {}, "Token"), field);
    const { box, closed } = dialog("A token is needed", h("div", {}, text, label), [["Go on", "go", "primary"]]);
    onEnter(field, () => box.close("go"));
    await closed;
    token = field.value.trim();
    sessionStorage.setItem("token", token);
    asking = null;
  })();
  return asking;
}

export async function json(path, options = {}) {
  if (options.body !== undefined && !(options.body instanceof Blob)) {
    options = {
      ...options,
      body: JSON.stringify(options.body),
      headers: { "Content-Type": "application/json", ...options.headers },
    };
  }
  let response;
  try {
    response = await call(path, options);
  } catch {
    throw new ApiError("the service does not answer", 0);
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  const told = await response.json().catch(() => ({}));
  const error = new ApiError(told.error ?? `the service answers ${response.status}`, response.status);
  error.retry = Number(response.headers.get("Retry-After")) || 0;
  error.results = told.results ?? []; // a part that could not be judged is a part, too
  throw error;
}

// pictures need the token too, so they are fetched and shown as object URLs; the last few hundred are kept
const pictures = new Map();
const MOST_PICTURES = 400;

// a fetch that `signal` ends is no longer waited for by anybody, so the service need not draw
export function picture(path, signal) {
  if (pictures.has(path)) {
    const known = pictures.get(path);
    pictures.delete(path);
    pictures.set(path, known);
    return known;
  }
  const url = call(path, { signal }).then(async (response) => {
    if (!response.ok) throw new ApiError("there is no picture", response.status);
    return URL.createObjectURL(await response.blob());
  });
  url.catch(() => pictures.delete(path));
  pictures.set(path, url);
  if (pictures.size > MOST_PICTURES) {
    const [oldest, old] = pictures.entries().next().value;
    pictures.delete(oldest);
    old.then(URL.revokeObjectURL, () => {});
  }
  return url;
}

// a picture that is fetched when it comes into view
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    picture(target.dataset.path).then(
      (url) => (target.src = url),
      () => target.classList.add("lost"),
    );
  }
});

export function lazily(image, path) {
  image.dataset.path = path;
  seen.observe(image);
}

const SILENT = 15000; // milliseconds; the service says something every ten seconds

// every event of the service, for as long as the page is open; after a break it goes on by itself.
// `state` is told "on" and "off"; `alive` at every sign of life
export async function listen(heard, state, alive) {
  for (let wait = 500; ; wait = Math.min(2 * wait, 10000)) {
    const over = new AbortController();
    let silence;
    const sign = () => {
      clearTimeout(silence);
      silence = setTimeout(() => over.abort(), SILENT);
    };
    try {
      sign();
      const response = await call("/v1/events", { signal: over.signal });
      if (!response.ok) throw new ApiError("no events", response.status);
      alive();
      state("on");
      wait = 500;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        sign();
        alive();
        const pieces = (rest + value).split("\n\n");
        rest = pieces.pop();
        for (const piece of pieces) tell(piece, heard);
      }
    } catch {
      // the service is away, or says nothing: try again
    }
    clearTimeout(silence);
    state("off");
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

function tell(piece, heard) {
  const lines = piece.split("\n");
  const said = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
  if (said("data")) heard(said("event") ?? "message", JSON.parse(said("data")));
}
