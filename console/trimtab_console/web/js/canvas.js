// Draws what has too many parts for elements: bars of workers, and the map of key groups.

let palette = null;
const css = (name) => palette.getPropertyValue(name).trim();

export function prepared(canvas) {
  palette = getComputedStyle(document.documentElement);
  const { width, height } = canvas.getBoundingClientRect();
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.font = "11px system-ui, sans-serif";
  return { context, width, height };
}

const LEFT = 38, BOTTOM = 20, TOP = 8, ZONES = 18;

export const barAt = (canvas, x, count) => {
  const width = canvas.getBoundingClientRect().width - LEFT;
  const at = Math.floor(((x - LEFT) / width) * count);
  return at >= 0 && at < count ? at : null;
};

// Use and demand of each bar against the capacity (100 %) and the mean use.
export function drawBars(canvas, data, selected) {
  const { context: c, width, height } = prepared(canvas);
  const count = data.first.length;
  if (!count) return;
  const high = Math.max(110, ...data.used.map((v) => v ?? 0), ...data.demand.map((v) => v ?? 0));
  const top = Math.min(300, Math.ceil(high / 20) * 20);
  const zoned = data.zone.some((zone) => zone !== null), base = height - BOTTOM - (zoned ? ZONES : 0), slot = (width - LEFT) / count;
  const y = (value) => base - (Math.min(value, top) / top) * (base - TOP);
  bands(c, data, slot, base);
  c.strokeStyle = css("--line"); c.fillStyle = css("--muted"); c.lineWidth = 1; c.textAlign = "right"; c.textBaseline = "middle";
  for (let value = 0; value <= top; value += top > 160 ? 50 : 25) {
    line(c, LEFT, width, Math.round(y(value)) + 0.5);
    c.fillText(`${value}%`, LEFT - 6, y(value));
  }
  const gap = slot > 8 ? Math.min(slot * 0.16, 14) : slot > 3 ? 0.5 : 0, inner = Math.min(slot - 2 * gap, 90);
  const beside = slot > 5;
  for (let at = 0; at < count; at += 1) {
    const x = LEFT + at * slot + (slot - inner) / 2;
    if (at === selected) { c.fillStyle = css("--soft"); c.fillRect(LEFT + at * slot, TOP, slot, base - TOP); }
    const several = data.count[at] > 1;
    bar(c, x, beside ? inner * 0.58 : inner, data.used[at], y, base, css(several ? "--ease" : "--accent"));
    if (several && data.used_mean[at] !== null) bar(c, x, beside ? inner * 0.58 : inner, data.used_mean[at], y, base, css("--accent"));
    if (beside) bar(c, x + inner * 0.62, inner * 0.38, data.demand[at], y, base, css("--demand"));
  }
  if (!beside) trace(c, data.demand, slot, y);
  c.lineWidth = 1.5; c.strokeStyle = css("--bad"); line(c, LEFT, width, y(100));
  if (data.mean_use !== null) {
    c.setLineDash([5, 4]); c.strokeStyle = css("--ink"); line(c, LEFT, width, y(data.mean_use)); c.setLineDash([]);
  }
  labels(c, data.host, slot, base, width);
  if (zoned) zones(c, data.zone, slot, base + BOTTOM, width);
}

function line(c, from, to, y) { c.beginPath(); c.moveTo(from, y); c.lineTo(to, y); c.stroke(); }

function bar(c, x, width, value, y, base, colour) {
  c.fillStyle = value === null ? css("--none") : colour;
  if (value === null) c.fillRect(x, base - 4, width, 4);
  else c.fillRect(x, y(value), Math.max(1, width), base - y(value));
}

// Demand as dots above narrow bars.
function trace(c, values, slot, y) {
  c.fillStyle = css("--demand");
  values.forEach((value, at) => { if (value !== null) c.fillRect(LEFT + at * slot, y(value) - 1, Math.max(1.2, slot - 0.4), 2); });
}

function bands(c, data, slot, base) {
  c.fillStyle = css("--bg");
  let odd = false, from = 0;
  if (new Set(data.host).size > 150) return;
  data.host.forEach((host, at) => {
    if (host === data.host[at + 1]) return;
    if (odd) c.fillRect(LEFT + from * slot, TOP, (at + 1 - from) * slot, base - TOP);
    odd = !odd; from = at + 1;
  });
}

function labels(c, names, slot, base, width) {
  c.fillStyle = css("--muted"); c.textAlign = "center"; c.textBaseline = "top";
  let from = 0, free = LEFT;
  names.forEach((host, at) => {
    if (host === names[at + 1]) return;
    const middle = LEFT + ((from + at + 1) / 2) * slot, half = c.measureText(host).width / 2;
    if (middle - half > free && middle + half < width) { c.fillText(host, middle, base + 5); free = middle + half + 14; }
    from = at + 1;
  });
}

// A line below the bars of each zone, and its name.
function zones(c, names, slot, y, width) {
  c.strokeStyle = css("--muted"); c.lineWidth = 1;
  let from = 0;
  names.forEach((zone, at) => {
    if (zone === names[at + 1]) return;
    line(c, LEFT + from * slot + 2, LEFT + (at + 1) * slot - 2, Math.round(y) + 0.5);
    from = at + 1;
  });
  labels(c, names.map((zone) => zone ?? "zone not known"), slot, y, width);
}

export function layout(width, height, count) {
  const columns = Math.max(1, Math.ceil(Math.sqrt((count * width) / height)));
  return { columns, rows: Math.ceil(count / columns), cell: width / columns };
}

// Key groups by partition, row by row; the colour is the load against the hottest one.
export function drawMap(canvas, data, selected) {
  const { context: c, width, height } = prepared(canvas);
  const { columns, rows, cell } = layout(width, height, data.first.length);
  const tall = Math.min(height / rows, cell * 1.6), gap = cell > 6 ? 1 : cell > 3 ? 0.5 : 0;
  const most = Math.max(1e-9, ...data.peak.map((v) => v ?? 0));
  const ramp = [css("--low"), css("--accent"), css("--high")].map(rgb), none = css("--none");
  data.peak.forEach((value, at) => {
    c.fillStyle = value === null ? none : mixed(ramp, value / most);
    const x = (at % columns) * cell, y = Math.floor(at / columns) * tall;
    c.fillRect(x, y, cell - gap, tall - gap);
    if (at === selected) { c.strokeStyle = css("--ink"); c.lineWidth = 2; c.strokeRect(x + 1, y + 1, Math.max(2, cell - gap - 2), Math.max(2, tall - gap - 2)); }
  });
  return { columns, cell, tall };
}

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
function mixed(ramp, share) {
  const [from, to, t] = share < 0.5 ? [ramp[0], ramp[1], share * 2] : [ramp[1], ramp[2], share * 2 - 1];
  return `rgb(${from.map((value, at) => Math.round(value + (to[at] - value) * t)).join(" ")})`;
}

// Pointer and arrow keys choose a part; `said` tells which, also to a screen reader.
export function choosing(canvas, { count, at, step, say, draw }) {
  let selected = null;
  const choose = (next) => { selected = next; draw(selected); say(selected); };
  canvas.tabIndex = 0;
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect(), next = at(event.clientX - box.left, event.clientY - box.top);
    if (next !== selected) choose(next);
  });
  canvas.addEventListener("pointerleave", () => choose(null));
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: step(), ArrowUp: -step() }[event.key];
    if (by === undefined || !count()) return;
    event.preventDefault();
    choose(Math.min(count() - 1, Math.max(0, (selected ?? (by > 0 ? -by : count())) + by)));
  });
  new ResizeObserver(() => draw(selected)).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(selected));
  return () => { draw(selected); if (selected !== null) say(selected); };
}
