// What operators send to each other: boxes and lines as wide as the rates, and the same values as a table.
import { bytes, count, h, number, share, table, unfold, UNKNOWN } from "./dom.js";
import { arranged } from "./layers.js";
import { drawing, picture, short, svg } from "./svg.js";

const SHOWN = 12, BOX = 40, LETTER = 7.3, POINT = 16, WIDEST = 16, THINNEST = 1.5, HEAD = 9;
const TALLEST = 760, LABELLED = 8, BETWEEN = 26;

// `found`: the flows, the largest first; `operators`: those of the app; `topics`: those that could be local; `all`: whether the table has every row.
export function flowsOf(found, operators, topics, all, toggle) {
  if (!found.items.length) return h("p", { class: "empty" }, "No operator of this app sends to another one, or nothing of it was measured in the last window.");
  const rows = all ? found.items : found.items.slice(0, SHOWN);
  return h("div", { class: found.items.length <= 6 ? "beside" : "" }, drawing((width) => draw(found.items, operators, width)), h("div", {},
    flowsTable(rows, found.items[0].tuples_s),
    unfold("flows", found.items.length, SHOWN, all, toggle),
    found.total > found.items.length ? h("p", { class: "muted" }, `The largest ${number(found.items.length)} of ${number(found.total)} flows.`) : null,
    topics.map((each) => h("p", {}, `${each.text}.`))));
}

const flowsTable = (rows, most) => table("Flows", [
  ["from", (row) => row.source], ["to", (row) => `→ ${row.target}`], ["tuples/s", (row) => [meter(row.tuples_s / (most || 1), row.collocation), h("span", { class: "beside-bar" }, count(row.tuples_s))], true],
  ["bytes/s", (row) => bytes(row.bytes_s), true], ["same worker", (row) => share(row.collocation), true], ["past the broker", (row) => share(row.local_sends), true],
], rows);

// A bar for a number in a table, of which `part` stays on its worker.
function meter(size, part) {
  const whole = h("i", { class: part === null ? "unknown" : "" }), stays = h("b");
  whole.style.width = `${100 * Math.min(1, size)}%`;
  stays.style.width = `${100 * (part ?? 0)}%`;
  whole.append(stays);
  return h("span", { class: "meter", "aria-hidden": "true" }, whole);
}

function draw(flows, operators, width) {
  const names = [...new Set([...operators.map((row) => row.operator), ...flows.flatMap((row) => [row.source, row.target])])];
  const longest = Math.max(...names.map((name) => name.length));
  const flat = laid(names, flows, true, Math.min(180, Math.max(96, longest * LETTER + 22)), width);
  const plan = flat ?? laid(names, flows, false, Math.min(150, Math.max(84, longest * LETTER + 22)), width) ?? laid(names, flows, false, 84, width);
  if (!plan) return h("p", { class: "muted" }, `${names.length} operators do not fit into a drawing here: the table has their flows.`);
  return drawn(plan, flows, new Map(operators.map((row) => [row.operator, row])));
}

// Where everything goes, layers from left to right (`flat`) or from top to bottom; null if that does not fit.
function laid(names, flows, flat, wide, width) {
  const { layers, lines } = arranged(names, flows, (name) => (name === null ? POINT : flat ? BOX : wide), flat ? 14 : 12);
  const extent = Math.max(...layers.flat().map((node) => node.at + node.half)), last = layers.length - 1, along = flat ? wide : BOX;
  const pitch = flat ? Math.min(wide + 200, last ? (width - wide - 2) / last : 0) : BOX + 46;
  if (flat ? (last && pitch < wide + BETWEEN) || extent > TALLEST : extent + 2 > width || last * pitch > 1.3 * TALLEST) return null;
  return { layers, lines, flat, wide, pitch, along, extent, length: last * pitch + along };
}

function drawn(plan, flows, operators) {
  const { flat, layers, lines, along, pitch, extent, length } = plan, boxes = layers.flat().filter((node) => node.name !== null);
  const point = (a, b) => (flat ? [a + 1, b + 14] : [b + 1, a + 14]), scale = scaleOf(lines, boxes);
  stack(lines, scale);
  const width = (flat ? length : extent) + 2, height = (flat ? extent : length) + 28;
  const label = `Flows between ${boxes.length} operators; the table beside it has the values`;
  return picture(width, height, label, lines.map((line) => lineOf(line, { point, along, pitch, labelled: flat && flows.length <= LABELLED && pitch - along > 92 })),
    flows.filter((row) => row.source === row.target).map((row) => loopOf(row, boxes.find((node) => node.name === row.source), plan, point, scale)),
    boxes.map((node) => boxOf(node, plan, point, operators.get(node.name))));
}

// Pixels per tuple and second: the widest line has WIDEST, and all lines of a box fit on its side.
function scaleOf(lines, boxes) {
  let scale = WIDEST / Math.max(1e-9, ...lines.map(({ edge }) => edge.tuples_s));
  for (const node of boxes) {
    for (const end of ["source", "target"]) {
      const own = lines.filter(({ edge }) => edge[end] === node.name), sum = own.reduce((all, { edge }) => all + edge.tuples_s, 0);
      if (sum) scale = Math.min(scale, Math.max(1, 2 * node.half - 6 - 2 * own.length) / sum);
    }
  }
  return scale;
}

// Gives each line its width, and its place on the sides of its two boxes: in the order in which they leave.
function stack(lines, scale) {
  for (const line of lines) line.wide = Math.max(THINNEST, line.edge.tuples_s * scale);
  const spread = (own, node, other, key) => {
    let at = node.at - (own.reduce((sum, line) => sum + line.wide + 2, 0) - 2) / 2;
    for (const line of own.sort((a, b) => other(a).at - other(b).at)) { line[key] = at + line.wide / 2; at += line.wide + 2; }
  };
  for (const node of new Set(lines.flatMap(({ path }) => [path[0], path.at(-1)]))) {
    spread(lines.filter(({ path }) => path[0] === node), node, ({ path }) => path[1], "from");
    spread(lines.filter(({ path }) => path.at(-1) === node), node, ({ path }) => path.at(-2), "to");
  }
}

function lineOf({ edge, path, wide, from, to }, { point, along, pitch, labelled }) {
  const ahead = path.at(-1).layer > path[0].layer, out = ahead ? along : 0, into = ahead ? 0 : along, head = ahead ? -HEAD : HEAD;
  const stops = path.map((node, at) => [node.layer * pitch + (at === 0 ? out : at === path.length - 1 ? into + head : along / 2), at === 0 ? from : at === path.length - 1 ? to : node.at]);
  const way = stops.map(([a, b], at) => {
    if (!at) return `M${point(a, b)}`;
    const [before, side] = stops[at - 1], half = (before + a) / 2;
    return `C${point(half, side)} ${point(half, b)} ${point(a, b)}`;
  }).join(" ");
  const end = stops.at(-1), high = Math.max(4, wide / 2 + 2), tip = [[end[0], end[1] - high], [end[0] - head, end[1]], [end[0], end[1] + high]];
  const text = `${number(edge.tuples_s)}/s`, middle = point((stops[0][0] + stops[1][0]) / 2, (stops[0][1] + stops[1][1]) / 2 - wide / 2 - 5);
  return svg("g", { class: "flow" }, svg("title", {}, told(edge)), ...strokes(edge, way, wide),
    svg("polygon", { class: edge.collocation === null ? "unknown" : "", points: tip.map(([a, b]) => point(a, b)).join(" ") }),
    labelled && path.length === 2 ? svg("text", { class: "rate", x: middle[0], y: middle[1], "text-anchor": "middle" }, text) : null);
}

const strokes = (edge, way, wide) => [
  svg("path", { class: edge.collocation === null ? "unknown" : "all", d: way, "stroke-width": wide }),
  edge.collocation ? svg("path", { class: "stays", d: way, "stroke-width": Math.max(0.5, wide * edge.collocation) }) : null,
];

// An operator that sends to itself.
function loopOf(edge, node, { pitch, along, flat }, point, scale) {
  const a = node.layer * pitch + along / 2, b = node.at - (flat ? BOX / 2 : node.half), wide = Math.max(THINNEST, Math.min(6, edge.tuples_s * scale));
  return svg("g", { class: "flow" }, svg("title", {}, told(edge)), ...strokes(edge, `M${point(a - 12, b)} C${point(a - 12, b - 15)} ${point(a + 12, b - 15)} ${point(a + 12, b)}`, wide));
}

const told = (edge) => `${edge.source} to ${edge.target}: ${number(edge.tuples_s)} tuples/s, ${bytes(edge.bytes_s)}/s; ${share(edge.collocation)} on the same worker, ${share(edge.local_sends)} past the broker`;

function boxOf(node, { pitch, along, wide, flat }, point, row) {
  const a = node.layer * pitch, [x, y] = flat ? point(a, node.at - BOX / 2) : point(a, node.at - node.half), letters = Math.floor((wide - 14) / LETTER);
  const more = row?.cpu_cores === null || !row ? `${UNKNOWN} cores` : `${number(row.cpu_cores, 2)} cores`;
  return svg("g", { class: "box" }, svg("title", {}, node.name), svg("rect", { x, y, width: flat ? along : wide, height: BOX, rx: 7 }),
    svg("text", { x: x + wide / 2, y: y + 17, "text-anchor": "middle" }, short(node.name, letters)),
    svg("text", { class: "more", x: x + wide / 2, y: y + 32, "text-anchor": "middle" }, short(more, letters + 3)));
}
