// Builds drawings of a few parts as SVG, in the width that their place has.
import { h } from "./dom.js";

const NAMESPACE = document.querySelector(".brand svg").namespaceURI;

export function svg(name, attributes, ...children) {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, typeof value === "number" ? Math.round(value * 10) / 10 : value);
  element.append(...children.flat().filter((child) => child !== null));
  return element;
}

// A place whose drawing is made for its width, and made anew when that changes.
export function drawing(make) {
  const place = h("div", { class: "drawing" });
  let width = 0;
  new ResizeObserver(() => {
    if (!place.clientWidth || place.clientWidth === width) return;
    width = place.clientWidth;
    place.replaceChildren(make(width));
  }).observe(place);
  return place;
}

export const picture = (width, height, label, ...children) =>
  svg("svg", { class: "picture", viewBox: `0 0 ${Math.round(width)} ${Math.round(height)}`, width, height, role: "img", "aria-label": label }, ...children);

// A name in at most so many characters; what tells names apart is mostly at their ends.
export function short(text, most) {
  if (text.length <= most) return text;
  const start = Math.floor((most - 1) / 2);
  return `${text.slice(0, start)}…${text.slice(text.length - (most - 1 - start))}`;
}
