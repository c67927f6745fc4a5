// What a plan moves from worker to worker, as arrows from left to right, and the same values as a table.
import { h, number, percent, plural, table, UNKNOWN } from "./dom.js";
import { drawing, picture, short, svg } from "./svg.js";

const LETTER = 7.2, ROW = 32, GAP = 8, BAR = 6, THINNEST = 1.5, HEIGHT = 300;
// Phase -> the colour of its part of an arrow, in the order in which the parts are drawn.
const COLOURS = { done: "done", releasing: "moving", preparing: "moving", resolving: "moving", waiting: "still", planned: "still", unresolved: "failed", failed: "failed" };
export const LEGEND = [["use", "done"], ["demand", "in flight"], ["none", "not begun"], ["bad", "failed"]];

export function arrowsOf(found) {
  const byLoad = found.items.every((row) => row.load_pct !== null && !row.unknown_loads);
  const value = (row) => (byLoad ? row.load_pct : row.key_groups), rest = found.key_groups_total - found.key_groups;
  return [
    drawing((width) => draw(found, value, width)),
    h("p", { class: "muted" }, byLoad ? "As wide as the load that moves." : "As wide as the number of key groups; not all loads are known.",
      rest > 0 ? ` Events name ${number(found.key_groups)} of the plan's ${number(found.key_groups_total)} moves.` : ""),
    h("details", {}, h("summary", {}, "The same as a table"), movesTable(found)),
  ];
}

const others = (name, count) => name ?? plural(count, "other worker");
const unnamed = (found, side) => found[`${side}s_total`] - new Set(found.items.map((row) => row[side]).filter((name) => name !== null)).size;
const phases = (row) => Object.entries(row.phases).map(([phase, count]) => `${number(count)} ${phase}`).join(", ");
const loadOf = (row) => (row.load_pct === null ? UNKNOWN : `${row.unknown_loads ? "at least " : ""}${percent(row.load_pct, 1)}`);

const movesTable = (found) => table("Moves from worker to worker", [
  ["from", (row) => others(row.source, unnamed(found, "source"))], ["to", (row) => `→ ${others(row.target, unnamed(found, "target"))}`],
  ["key groups", (row) => number(row.key_groups), true], ["load of a core", loadOf, true], ["phase", phases],
], found.items);

// Workers of one side with their sizes, the largest first and the unnamed together last.
function side(found, key, value, scale) {
  const nodes = new Map();
  for (const row of found.items) {
    const node = nodes.get(row[key]) ?? { name: others(row[key], unnamed(found, key)), last: row[key] === null, key_groups: 0, load_pct: 0, unknown_loads: 0, size: 0, rows: [] };
    node.key_groups += row.key_groups; node.load_pct += row.load_pct ?? 0; node.unknown_loads += row.unknown_loads; node.rows.push(row);
    node.size += Math.max(THINNEST, value(row) * scale);
    nodes.set(row[key], node);
  }
  return [...nodes.values()].sort((a, b) => a.last - b.last || b.size - a.size || (a.name < b.name ? -1 : 1));
}

function draw(found, value, width) {
  const total = found.items.reduce((sum, row) => sum + value(row), 0), scale = Math.min(90, HEIGHT / 2) / Math.max(1e-9, total) * Math.min(2, Math.max(1, found.items.length / 3));
  const text = Math.min(210, width * 0.3), left = side(found, "source", value, scale), right = side(found, "target", value, scale);
  const tall = (nodes) => nodes.reduce((sum, node) => sum + Math.max(ROW, node.size) + GAP, 0) - GAP, height = Math.max(tall(left), tall(right));
  const places = new Map(found.items.map((row) => [row, {}]));
  for (const [nodes, key, order] of [[left, "from", right], [right, "to", left]]) {
    let at = (height - tall(nodes)) / 2;
    for (const node of nodes) {
      const slot = Math.max(ROW, node.size);
      node.top = at + (slot - node.size) / 2;
      node.middle = at + slot / 2;
      let next = node.top;
      const rank = (row) => order.findIndex((each) => each.rows.includes(row));
      for (const row of [...node.rows].sort((a, b) => rank(a) - rank(b))) { places.get(row)[key] = next; next += Math.max(THINNEST, value(row) * scale); }
      at += slot + GAP;
    }
  }
  const x1 = text + BAR, x2 = width - text - BAR;
  const moved = `${plural(found.key_groups, "key group")} ${found.key_groups === 1 ? "moves" : "move"}`;
  const label = `${moved} from ${number(found.sources_total)} to ${plural(found.targets_total, "worker")}; the table below has the values`;
  return picture(width, height + 2, label,
    found.items.map((row) => arrow(found, row, Math.max(THINNEST, value(row) * scale), places.get(row), x1 + 2, x2 - 2)),
    left.map((node) => end(node, text, -1, text)), right.map((node) => end(node, width - text - BAR, 1, text)));
}

function arrow(found, row, wide, { from, to }, x1, x2) {
  const parts = [], half = (x1 + x2 - 8) / 2, known = Object.keys(COLOURS).filter((phase) => row.phases[phase]);
  let done = 0;
  for (const phase of [...known, ...Object.keys(row.phases).filter((each) => !(each in COLOURS))]) {
    const part = (wide * row.phases[phase]) / row.key_groups, y1 = from + done, y2 = to + done;
    parts.push(svg("path", { class: COLOURS[phase] ?? "still", d: `M${x1} ${y1}C${half} ${y1} ${half} ${y2} ${x2 - 8} ${y2}V${y2 + part}C${half} ${y2 + part} ${half} ${y1 + part} ${x1} ${y1 + part}Z` }));
    done += part;
  }
  const tip = COLOURS[Object.entries(row.phases).sort((a, b) => b[1] - a[1])[0][0]] ?? "still", high = Math.max(4, wide / 2), y = to + wide / 2;
  const load = row.load_pct === null ? "" : `, ${loadOf(row)} of a core`;
  const told = `${others(row.source, unnamed(found, "source"))} to ${others(row.target, unnamed(found, "target"))}: ${plural(row.key_groups, "key group")}${load}; ${phases(row)}`;
  return svg("g", { class: "arrow" }, svg("title", {}, told), parts, svg("polygon", { class: tip, points: `${x2 - 8},${y - high} ${x2},${y} ${x2 - 8},${y + high}` }));
}

// A worker at one end: its bar, name, and what leaves or comes.
function end(node, x, way, room) {
  const text = { x: way < 0 ? x - 6 : x + BAR + 6, "text-anchor": way < 0 ? "end" : "start" }, letters = Math.floor((room - 6) / LETTER);
  const load = node.unknown_loads ? "" : percent(node.load_pct, 1), count = plural(node.key_groups, "key group");
  const more = load && `${count} · ${load}`.length <= letters + 2 ? `${count} · ${load}` : count;
  return svg("g", { class: "end" }, svg("title", {}, node.name), svg("rect", { x, y: node.top, width: BAR, height: Math.max(2, node.size), rx: 2 }),
    svg("text", { ...text, y: node.middle - 3 }, short(node.name, letters)), svg("text", { ...text, class: "more", y: node.middle + 12 }, more));
}
