// One app: its operators, and their key groups as a map coloured by load.
import { endRestartButton, restartButton, scaleButton, stopButton, unscaleButton } from "./actions.js";
import { get, maybe, name, now } from "./api.js";
import { choosing, drawMap } from "./canvas.js";
import { bytes, card, cores, count, h, key, number, percent, plural, share, show, table, tile, times, unfold } from "./dom.js";
import { flowsOf } from "./flows.js";
import { whyLink } from "./why.js";

const SHOWN = 12; // operators as buttons, and rows of a table until it is unfolded

export function app(root, wanted) {
  const title = h("h1", {}, wanted ?? "Apps"), which = h("div", { class: "chips", role: "group", "aria-label": "App" });
  const tiles = h("div", { class: "tiles" }), chips = h("div", { class: "chips", role: "group", "aria-label": "Operator" });
  const canvas = h("canvas", { class: "plot map", role: "img", "aria-label": "Load of the key groups" }), said = h("p", { class: "said muted", "aria-live": "polite" });
  const note = h("span", { class: "note" }), scale = h("span", { class: "key" });
  const map = card("Key groups by load", "wide", chips, h("p"), canvas, said), size = card("Size", "third", h("div"));
  map.firstChild.append(note, scale, key("none", "not measured"));
  const operators = card("Operators", "half", h("div")), hottest = card("Hottest key groups", "half", h("div"));
  const buttons = h("div", { class: "actions" }), flows = card("Flows between operators", "", h("div"));
  flows.firstChild.append(h("span", { class: "note" }, "the last window"), key("ease", "tuples"), key("use", "of them on the same worker"), key("none", "where is unknown"));
  root.replaceChildren(h("div", { class: "title" }, title, buttons), which, tiles, map, size, flows, operators, hottest);
  let data = null, operator = null, drawn = null, allFlows = false, allOperators = false;
  const say = (at) => { said.textContent = at === null || !data ? "Point at a cell, or use the arrow keys, to read its values." : cellText(data, at); };
  const redraw = choosing(canvas, {
    count: () => data?.first.length ?? 0, step: () => drawn?.columns ?? 1, say,
    at: (x, y) => {
      const place = drawn ? Math.floor(y / drawn.tall) * drawn.columns + Math.min(drawn.columns - 1, Math.floor(x / drawn.cell)) : -1;
      return data && place >= 0 && place < data.first.length ? place : null;
    },
    draw: (selected) => { if (data) drawn = drawMap(canvas, data, selected); },
  });

  return async function refresh() {
    const [list, intents] = await Promise.all([maybe("apps", { items: [] }), maybe("intents?limit=1000", { items: [] })]);
    const row = list.items.find((each) => each.app === wanted) ?? list.items[0];
    for (const each of [map, size, operators, hottest]) each.hidden = !row;
    flows.hidden ||= !row;
    if (!row) return show(tiles, null, () => h("p", { class: "empty" }, "No app has reported yet."));
    title.textContent = row.app;
    show(which, [list.items.map((each) => each.app), row.app], () => (list.items.length < 2 ? [] : list.items.map((each) =>
      h("button", { "aria-pressed": String(each.app === row.app), onclick: () => { location.hash = `#/app/${name(each.app)}`; } }, each.app))));
    show(tiles, row, () => tilesOf(row));
    show(size.lastChild, row, () => sizeOf(row));
    const none = { items: [], total: 0 };
    const [found, sent] = await Promise.all([maybe(`apps/${name(row.app)}/operators`, []), maybe(`apps/${name(row.app)}/flows?limit=1000`, none)]);
    const isAsked = (kind) => intents.items.some((each) => each.kind === kind && each.about === row.app);
    const isSet = isAsked("scale"), restarts = isAsked("rolling restart");
    show(buttons, [row.app, row.size?.workers, isSet, restarts], () => [scaleButton(row.app, row.size?.workers), isSet ? unscaleButton(row.app) : null,
      restarts ? endRestartButton(row.app) : restartButton(row.app), stopButton(row.app)]);
    const busiest = [...found].sort((a, b) => (b.cpu_cores ?? -1) - (a.cpu_cores ?? -1));
    show(operators.lastChild, [busiest, allOperators], () => operatorsTable(busiest, allOperators, () => { allOperators = !allOperators; refresh(); }));
    flows.hidden = found.length < 2 && !sent.items.length;
    const topics = row.remote_costs?.topics ?? [];
    show(flows.lastChild, [sent, found.map((each) => [each.operator, each.cpu_cores]), topics, allFlows], () => flowsOf(sent, found, topics, allFlows, () => { allFlows = !allFlows; refresh(); }));
    operator = found.some((each) => each.operator === operator) ? operator : found[0]?.operator;
    show(chips, [found.map((each) => each.operator), operator], () => chooser(found.map((each) => each.operator), operator, (each) => { operator = each; refresh(); }));
    if (!operator) { said.textContent = "No window has been published lately."; return; }
    const path = `apps/${name(row.app)}/operators/${name(operator)}`;
    const cells = Math.max(64, Math.min(16384, Math.floor((canvas.clientWidth * canvas.clientHeight) / 30)));
    const [cellData, hot] = await Promise.all([get(`${path}/map?cells=${cells}`), get(`${path}/key-groups?order=load&limit=10`)]);
    data = cellData;
    const peak = Math.max(-1, ...data.peak.map((value) => value ?? -1));
    scale.hidden = peak < 0;
    show(scale, peak, () => (peak ? ["0", h("i", { class: "ramp" }), `${number(peak, peak < 0.1 ? 3 : peak < 1 ? 2 : 1)} % of a core`] : "idle: each has used 0 % of a core"));
    note.textContent = data.per_cell > 1 ? `${number(data.key_groups)}, ${data.per_cell} to a cell: the hottest of each` : plural(data.key_groups, "key group");
    canvas.setAttribute("aria-label", `Load of ${data.key_groups} key groups of ${operator}; arrow keys choose a cell`);
    redraw();
    if (!said.textContent) say(null);
    show(hottest.lastChild, [row.app, operator, hot.items], () => hottestTable(hot.items, `${row.app}/${operator}`));
  };
}

function cellText(data, at) {
  const worker = data.workers[data.worker[at]], load = data.peak[at];
  const which = data.per_cell > 1 ? `key group ${data.hottest[at]}, the hottest of ${data.first[at]} to ${data.last[at]}` : `key group ${data.first[at]}`;
  return load === null ? `${which} on ${worker}: not measured in the last window` : `${which} on ${worker}: ${percent(load, 2)} of a core${data.per_cell > 1 ? `; mean of the cell ${percent(data.mean[at], 2)}` : ""}`;
}

function tilesOf(row) {
  const loss = row.n_minus_1_worker ? `at ${row.n_minus_1_worker}; bound ${percent(row.n_minus_1_bound_pct)}` : "unknown while key groups lack a standby";
  return [
    tile("Load distance", number(row.load_distance, 1), "pp", row.not_ready ?? `noise ${number(row.noise, 1)} pp`, row.not_ready ? "warn" : ""),
    tile("Mean load", percent(row.mean_load), "", `${number(row.key_groups)} key groups`),
    tile("Headroom", times(row.capacity?.headroom ?? null), "", row.capacity?.first ? `until ${row.capacity.first} is full` : "", row.capacity?.headroom !== null && row.capacity?.headroom < 1 ? "bad" : ""),
    tile("With free moves", times(row.capacity?.potential ?? null), "", `no placement exceeds ${times(row.capacity?.bound ?? null)}`),
    tile("After the loss of a host", percent(row.n_minus_1_pct), "", loss, row.n_minus_1_pct > 100 ? "bad" : ""),
    tile("Lack a standby", number(row.missing_standbys), "", `load unknown: ${share(row.unknown_load)}`, row.missing_standbys ? "warn" : ""),
    pausedTile(row.disruption),
  ];
}

function pausedTile(used) {
  if (!used) return tile("Paused in the last hour", "–", "", "not counted by this controller");
  const free = used.free_at === null ? "the limit is too low for a key group" : `room again in ${Math.max(0, Math.ceil((used.free_at - now()) / 60))} min`;
  const room = used.limit_s === null ? "no limit" : `of ${number(used.limit_s)}; ${used.fits > 0 ? `room for ${number(used.fits)} key groups` : free}`;
  const causes = (used.causes ?? []).filter((row) => row.used_s >= 0.05).map((row) => `${row.cause.replaceAll("_", " ")} ${number(row.used_s, 1)}`);
  return tile("Paused in the last hour", number(used.used_s, 1), "key-group s", [room, ...causes].join("; "), used.fits === 0 ? "warn" : "");
}

function sizeOf(row) {
  const fixed = row.fixed.length ? [h("h2", {}, `Fixed workers: ${row.fixed.length}`), h("p", { class: "muted" }, "Plans are made around them."),
    h("ul", {}, row.fixed.slice(0, 8).map((each) => h("li", {}, `${each.worker}: `, h("a", { href: `#/health/${name(each.reason)}` }, each.reason.replaceAll("_", " ")), each.text ? `, ${each.text}` : "")))] : [];
  const forecast = row.forecast ? [h("p", {}, `Forecast: ${row.forecast.text}.`)] : [];
  return [h("p", {}, row.size ? row.size.text : "The controller does not judge the size of this app."), ...forecast, ...restartOf(row.restart), ...fixed];
}

// How far the rolling restart of the app is.
function restartOf(found) {
  if (!found) return [];
  const now = found.host ? `, now those on ${found.host}` : "", left = found.skipped.length ? `; left out: ${found.skipped.slice(0, 8).join(", ")}` : "";
  const without = found.differ ? h("p", {}, `Without a drain, since nothing may move: ${found.differ}.`) : null;
  const waits = found.waits ? h("p", {}, `Waits: ${found.waits}.`) : null;
  return [h("h2", {}, "Rolling restart"), h("p", {}, `${found.done} of ${plural(found.workers, "worker")}${now}${left}.`), without, waits].filter(Boolean);
}

// A button for each operator; a list of them where they are many.
function chooser(names, chosen, choose) {
  if (names.length <= SHOWN) return names.map((each) => h("button", { "aria-pressed": String(each === chosen), "data-key": each, onclick: () => choose(each) }, each));
  return h("select", { "aria-label": "Operator", "data-key": "operator", onchange: (event) => choose(event.target.value) }, names.map((each) => h("option", { selected: each === chosen }, each)));
}

const operatorsTable = (rows, all, toggle) => [table("Operators", [
  ["operator", (row) => row.operator], ["key groups", (row) => number(row.key_groups), true], ["cores", (row) => cores(row.cpu_cores), true],
  ["inputs/s", (row) => count(row.tuples_in_s), true], ["backlog", (row) => count(row.backlog), true], ["state", (row) => bytes(row.state_bytes), true],
  ["not measured", (row) => number(row.unmeasured), true],
], all ? rows : rows.slice(0, SHOWN), "No window has been published lately."), unfold("operators", rows.length, SHOWN, all, toggle)];

const hottestTable = (rows, operator) => table("Hottest key groups", [
  ["key group", (row) => whyLink(`${operator}/${row.partition}`, String(row.partition)), true], ["worker", (row) => row.worker], ["load of a core", (row) => percent(row.load_pct, 2), true],
  ["inputs/s", (row) => number(row.tuples_in_s), true], ["state", (row) => bytes(row.state_bytes), true],
], rows);
