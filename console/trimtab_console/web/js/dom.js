// Builds elements and words numbers. Text is always set as text: what comes over the wire is never parsed as HTML.

export function h(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const UNKNOWN = "–";
export const number = (value, digits = 0) =>
  value === null || value === undefined ? UNKNOWN
    : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
// In as few digits as a table has room for.
export const count = (value) => (value >= 1e6 ? value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 2 }) : number(value));
export const cores = (value) => number(value, value >= 100 ? 0 : 2);
export const percent = (value, digits = 0) => (value === null || value === undefined ? UNKNOWN : `${number(value, digits)} %`);
export const share = (value) => percent(value === null || value === undefined ? null : value * 100, 1);
export const times = (value) => (value === null || value === undefined ? UNKNOWN : `${number(value, 2)}×`);

export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${number(value, at && value < 100 ? 1 : 0)} ${units[at]}`;
}

export function ago(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  if (seconds < 90) return `${number(Math.max(0, seconds))} s`;
  if (seconds < 5400) return `${number(seconds / 60)} min`;
  return seconds < 172800 ? `${number(seconds / 3600)} h` : `${number(seconds / 86400)} days`;
}

export const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

export const tile = (name, value, unit, more, kind) =>
  h("div", { class: `tile ${kind ?? ""}` }, h("div", { class: "name" }, name),
    h("div", { class: "value" }, value, unit && value !== UNKNOWN ? h("span", { class: "unit" }, unit) : null),
    h("div", { class: "more" }, more ?? ""));

export const card = (title, width, ...children) =>
  h("section", { class: `card ${width}`, "aria-label": title },
    h("div", { class: "head" }, h("h2", {}, title)), ...children);

const PATIENCE_MS = 300;

// A field to find `what` by a `part` of it; `changed` is called when nothing more is typed.
export function finder(what, part, changed) {
  let due = null;
  return h("input", { type: "search", class: "find", placeholder: part, "aria-label": `Find ${what}`, maxlength: 200, oninput: () => { clearTimeout(due); due = setTimeout(changed, PATIENCE_MS); } });
}

export const key = (kind, text) => h("span", { class: "key" }, h("i", { class: `swatch ${kind}` }), text);

// `columns`: [name, of a row: text or element, true for a number or else a class].  On a phone a row becomes a few lines, in
// which each value has the name of its column: roles say that it is a table all the same.
export function table(caption, columns, rows, empty) {
  const kind = (n) => (n === true ? "n" : n);
  if (!rows.length) return h("p", { class: "empty" }, empty ?? "none");
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h("table", { role: "table" },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(([name, , n]) => h("th", { scope: "col", role: "columnheader", class: kind(n) }, name)))),
      h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, columns.map(([name, of, n]) => cell(name, of(row), kind(n))))))));
}

const cell = (name, value, kind) => h("td", { role: "cell", class: kind, "data-name": name, "data-empty": value === "" }, value);

export const plural = (count, one) => `${number(count)} ${one}${count === 1 ? "" : "s"}`;

// The button that shows all rows of a table, or the first `shown` of them again.
export const unfold = (key, total, shown, all, toggle) => (total <= shown ? null
  : h("p", {}, h("button", { type: "button", class: "action", "data-key": key, "aria-expanded": String(all), onclick: toggle }, all ? `The first ${shown} only` : `All ${number(total)}`)));

// Replaces the children of a place only if what they show has changed: focus and scroll positions stay.  A button that is
// made anew keeps the focus by its data-key.
const shown = new WeakMap();
export function show(place, data, make) {
  const text = JSON.stringify(data);
  if (shown.get(place) === text) return;
  shown.set(place, text);
  const key = place.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  place.replaceChildren(...[make()].flat().filter(Boolean));
  if (key) place.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}
