// Small helpers: elements, SVG, numbers and times as people read them.

export const $ = (id) => document.getElementById(id);

export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

export function s(tag, props = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "css") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SHAPES = {
  // a ring with a tick, an octagon with a cross, a ring with a dash: told apart without colour
  passed: ["M12 2.5a9.5 9.5 0 1 0 0 19a9.5 9.5 0 1 0 0-19z", "M7.6 12.4l3 3l5.8-6.4"],
  rejected: ["M8.1 2.5h7.8l5.6 5.6v7.8l-5.6 5.6H8.1l-5.6-5.6V8.1z", "M8.7 8.7l6.6 6.6M15.3 8.7l-6.6 6.6"],
  none: ["M12 2.5a9.5 9.5 0 1 0 0 19a9.5 9.5 0 1 0 0-19z", "M8 12h8"],
};

export const kind = (verdict) => (verdict === "passed" || verdict === "rejected" ? verdict : "none");
export const word = (verdict) => ({ passed: "Passed", rejected: "Rejected" })[verdict] ?? "Not judged";

export function glyph(verdict, size = 18) {
  const [ground, mark] = SHAPES[kind(verdict)];
  return s(
    "svg",
    { viewBox: "0 0 24 24", width: size, height: size, class: `glyph-${kind(verdict)}`, "aria-hidden": "true" },
    s("path", { d: ground, class: "ground" }),
    s("path", { d: mark, class: "mark" }),
  );
}

export function num(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return value.toFixed(0);
  return value.toPrecision(size >= 100 ? 4 : 3);
}

export function percent(share) {
  if (share === null || share === undefined) return "–";
  const value = 100 * share;
  return `${value >= 10 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toPrecision(1)}\u202f%`;
}

export const counted = (n, thing) => `${n} ${thing}${n === 1 ? "" : "s"}`;

// a name in a sentence; where it stands alone, the style sheet cuts it
export const clipped = (name) => (name.length > 60 ? `${name.slice(0, 59)}…` : name);

export function clock(at) {
  const date = new Date(at);
  // hours as a line counts them, whatever the language
  const today = new Date().toDateString() === date.toDateString();
  const time = date.toLocaleTimeString([], {
    hour: "2-digit",
    minute: "2-digit",
    second: today ? "2-digit" : undefined,
    hour12: false,
  });
  return today ? time : `${date.toLocaleDateString([], { day: "numeric", month: "short" })}, ${time}`;
}

export function day(at) {
  const date = new Date(at);
  return `${date.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" })}, ${date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false })}`;
}

// how long something took or has been, roughly
export function since(ms) {
  const minutes = Math.floor(ms / 60000);
  if (minutes < 1) return counted(Math.max(0, Math.floor(ms / 1000)), "second");
  if (minutes < 120) return counted(minutes, "minute");
  return minutes < 2880 ? counted(Math.floor(minutes / 60), "hour") : counted(Math.floor(minutes / 1440), "day");
}

// a model that has taken the place of another and turns the verdicts on the last parts; "" for any other
export const wildness = ({ name, swap }) =>
  swap?.is_wild
    ? `The model ${name} has been replaced, and ${swap.changed} of the last ${counted(swap.parts, "part")} would get another verdict. Is it the right one?`
    : "";

export function toast(message, tone = "plain") {
  const box = h("p", { class: `toast ${tone}` }, message);
  for (const other of [...$("toasts").children]) if (other.textContent === message) other.remove(); // said once
  $("toasts").append(box);
  setTimeout(() => box.classList.add("gone"), 6000);
  setTimeout(() => box.remove(), 6500);
}

export function announce(message) {
  $("announcer").textContent = message;
}

// Enter in a field does what a button does; without its own effect, which would press what has the focus next
export function onEnter(field, act) {
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    act();
  });
}

// a dialog of content, closed by its buttons, Escape or a click beside it; resolves with what it was closed with
export function dialog(title, content, buttons, props = {}) {
  const close = (value) => box.close(value);
  const heading = h("h2", { id: `dialog-${Math.random().toString(36).slice(2)}` }, title);
  const row = h(
    "div",
    { class: "row end dialog-buttons" },
    buttons.map(([text, value, tone]) =>
      h("button", { type: "button", class: tone ?? "", value, onclick: () => close(value) }, text),
    ),
  );
  const box = h("dialog", { "aria-labelledby": heading.id, ...props }, heading, content, row);
  document.body.append(box);
  box.addEventListener("click", (event) => event.target === box && close(""));
  const closed = new Promise((resolve) => {
    box.addEventListener("close", () => {
      box.remove();
      resolve(box.returnValue);
    });
  });
  box.showModal();
  return { box, row, heading, closed, close };
}

// resolves with true if the answer is `yes`; nothing happens by a key that was meant for something else
export async function ask(title, content, yes) {
  const { row, closed } = dialog(title, content, [
    [yes, "yes", "primary"],
    ["Cancel", ""],
  ]);
  row.querySelector("button[value='']").focus();
  return (await closed) === "yes";
}
