// Arranges the nodes of a directed graph in layers, so that lines go one way and cross little: longest paths, points where
// a line passes a layer, barycentres (Sugiyama, Tagawa and Toda 1981).  What comes of it depends on names alone: rates
// that change move nothing.
const SWEEPS = 4;

// -> { layers: rows of nodes { name, at, half }, name null for a point that a line passes; lines: [{ edge, path }] }.
// `at` = the middle of a node in its layer, `half` = half its size there, from `size(name)`; `gap` between two of them.
export function arranged(names, edges, size, gap) {
  const lines = edges.filter((edge) => edge.source !== edge.target), { order, backward } = explored(names, lines);
  const ends = (edge) => (backward.has(edge) ? [edge.target, edge.source] : [edge.source, edge.target]);
  const depth = new Map(names.map((name) => [name, 0]));
  for (const name of order) {
    for (const [from, to] of lines.map(ends)) if (from === name) depth.set(to, Math.max(depth.get(to), depth.get(from) + 1));
  }
  const layers = Array.from({ length: Math.max(0, ...depth.values()) + 1 }, () => []);
  const node = (name, layer) => { const made = { name, layer, near: [], half: size(name) / 2 }; layers[layer].push(made); return made; };
  const known = new Map([...names].sort().map((name) => [name, node(name, depth.get(name))]));
  const paths = lines.map((edge) => {
    const [from, to] = ends(edge), path = [known.get(from)];
    for (let layer = depth.get(from) + 1; layer < depth.get(to); layer += 1) path.push(node(null, layer));
    path.push(known.get(to));
    path.forEach((each, at) => { if (at) { each.near.push(path[at - 1]); path[at - 1].near.push(each); } });
    return { edge, path: backward.has(edge) ? path.reverse() : path };
  });
  sort(layers);
  place(layers, gap);
  return { layers, lines: paths };
}

// The names so that those that send come before those that receive, and the edges that lead back all the same.
function explored(names, edges) {
  const fed = new Set(edges.map((edge) => edge.target)), open = new Set(), seen = new Set(), backward = new Set(), order = [];
  const visit = (name) => {
    seen.add(name);
    open.add(name);
    for (const edge of edges) {
      if (edge.source !== name) continue;
      if (open.has(edge.target)) backward.add(edge);
      else if (!seen.has(edge.target)) visit(edge.target);
    }
    open.delete(name);
    order.push(name);
  };
  const first = [...names].sort((a, b) => fed.has(a) - fed.has(b) || (a < b ? -1 : 1));
  for (const name of first) if (!seen.has(name)) visit(name);
  return { order: order.reverse(), backward };
}

const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
const beside = (node, by, of) => node.near.filter((each) => each.layer === node.layer + by).map(of);

function sort(layers) {
  const number = (row) => row.forEach((node, at) => { node.place = at; });
  layers.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const by = sweep % 2 ? 1 : -1;
    for (const row of by < 0 ? layers : [...layers].reverse()) {
      const wanted = new Map(row.map((node) => { const near = beside(node, by, (each) => each.place); return [node, near.length ? mean(near) : node.place]; }));
      row.sort((a, b) => wanted.get(a) - wanted.get(b) || a.place - b.place);
      number(row);
    }
  }
}

// Each node near the middle of its neighbours, without overlaps; the least place is 0.
function place(layers, gap) {
  const settle = (row, wanted) => {
    let free = -Infinity;
    row.forEach((node, at) => { node.at = Math.max(wanted[at], free + node.half); free = node.at + node.half + gap; });
    const off = mean(row.map((node, at) => wanted[at] - node.at));
    for (const node of row) node.at += off;
  };
  for (const row of layers) settle(row, row.map(() => 0));
  for (let sweep = 0; sweep < 2 * SWEEPS; sweep += 1) {
    for (const row of sweep % 2 ? [...layers].reverse() : layers) {
      settle(row, row.map((node) => (node.near.length ? mean(node.near.map((each) => each.at)) : node.at)));
    }
  }
  const least = Math.min(...layers.flat().map((node) => node.at - node.half));
  for (const node of layers.flat()) node.at -= least;
}
