// Plans: what moves and why, predicted and measured, how far it is.
import { maybe, name, now } from "./api.js";
import { ago, bytes, card, h, key, number, percent, plural, show, table, UNKNOWN } from "./dom.js";
import { stopButton, undoButton } from "./actions.js";
import { arrowsOf, LEGEND } from "./arrows.js";
import { when } from "./events.js";
import { waiting } from "./proposals.js";
import { whyLink } from "./why.js";

const PAGE = 50;

export function plan(root, wanted) {
  const detail = card("Plan", "half", h("div")), effect = card("Load distance", "half", h("div"));
  const arrows = card("What moves where", "wide", h("div")), loads = card("Loads of its workers", "third", h("div"));
  const reasons = card("Why these moves", "", h("div"));
  arrows.firstChild.append(...LEGEND.map(([kind, text]) => key(kind, text)));
  const moves = card("Moves", "", h("div")), list = card("Plans", "", h("div"));
  const waits = card("Plans that wait for approval", "", h("div"));
  const empty = h("p", { class: "empty" }, "No plan has been made yet.");
  root.replaceChildren(h("h1", {}, "Plans"), waits, empty, detail, effect, arrows, loads, reasons, moves, list);
  let offset = 0;

  return async function refresh() {
    await waiting(waits);
    const found = await maybe("plans?limit=100", { items: [] });
    const row = wanted ? found.items.find((each) => each.plan === wanted) : found.items[0];
    empty.hidden = found.items.length > 0;
    for (const each of [detail, effect, arrows, reasons, loads, moves]) each.hidden = !row;
    list.hidden = !found.items.length;
    show(list.lastChild, [found.items, row?.plan], () => plansTable(found.items));
    if (!row) { if (wanted && found.items.length) { empty.hidden = false; empty.textContent = `Plan ${wanted} is not among the last ones.`; } return; }
    detail.firstChild.firstChild.textContent = `Plan ${row.plan} of ${row.app}`;
    show(detail.lastChild, row, () => about(row));
    show(effect.lastChild, row, () => steps(row));
    const path = `plans/${name(row.plan)}`;
    const [moving, events] = await Promise.all([
      maybe(`${path}/moves?offset=${offset}&limit=${PAGE}`), maybe(`events?plan=${name(row.plan)}&kind=plan&limit=1`, { total: 0 }),
    ]);
    const [between, told] = await Promise.all([
      moving || events.total ? maybe(`${path}/moves/by-worker`) : null, events.total ? maybe(`${path}/explanation`) : null,
    ]);
    arrows.hidden = !between?.items.length;
    if (between) show(arrows.lastChild, between, () => arrowsOf(between));
    reasons.hidden = loads.hidden = !told;
    arrows.classList.toggle("wide", Boolean(told));
    if (told) {
      show(reasons.lastChild, told, () => reasonsOf(told));
      show(loads.lastChild, told, () => loadsOf(told));
    }
    moves.hidden = !moving && Boolean(told);
    show(moves.lastChild, moving, () => movesOf(moving, (to) => { offset = to; refresh(); }));
  };
}

function about(row) {
  const total = Object.values(row.handovers).reduce((a, b) => a + b, 0);
  const done = ["done", "failed", "unresolved"].reduce((sum, phase) => sum + (row.handovers[phase] ?? 0), 0);
  const state = row.ended_at === null ? `in flight for ${ago(now() - row.started_at)}` : `ended after ${ago(row.ended_at - row.started_at)}`;
  const phases = Object.entries(row.handovers).map(([phase, count]) => `${count} ${phase}`).join(", ");
  return [
    h("p", {}, h("span", { class: `badge ${row.ended_at === null ? "good" : ""}` }, state), " ", `began at ${when(row.started_at)}`),
    h("p", {}, row.reason), row.stopped ? h("p", { class: "warn-text" }, row.stopped) : null,
    h("progress", { max: Math.max(1, total), value: done, "aria-label": "hand-overs that have ended" }),
    h("p", { class: "muted" }, `hand-overs: ${phases || "none"}; ${plural(row.migrations, "key group")} moved${row.failed ? `, ${row.failed} not moved` : ""}, ${bytes(row.bytes_moved)} of state`),
    h("p", { class: "muted" }, `pause of a hand-over: median ${seconds(row.pause_median_s)}, longest ${seconds(row.pause_longest_s)}`),
    row.recovery_planned_s === null ? null : h("p", { class: "muted" }, `all warm after ${seconds(row.recovery_s)}; ${seconds(row.recovery_planned_s)} planned, bound ${seconds(row.recovery_bound_s)}`),
    h("p", { class: "muted" }, `solver: ${row.status}${row.fallback ? ", by Flux" : ""}`),
    row.ended_at === null ? h("p", {}, stopButton(row.app)) : row.migrations ? h("p", {}, undoButton(row.plan)) : null,
  ].filter(Boolean);
}

const seconds = (value) => (value === null ? UNKNOWN : `${number(value, 2)} s`);

function steps(row) {
  const high = Math.max(row.before, row.planned, row.after ?? 0, row.lower_bound, 0.1);
  const line = (label, value, kind) => {
    const fill = h("i");
    fill.style.width = `${value === null ? 0 : Math.max(0.5, (100 * value) / high)}%`;
    return [h("span", {}, label), h("div", { class: `bar ${kind}` }, fill), h("b", {}, value === null ? UNKNOWN : `${number(value, 2)} pp`)];
  };
  const later = row.incomparable ? `Not comparable: ${row.incomparable}.` : row.after === null ? "It is measured in the first whole window after the plan." : null;
  return [
    h("div", { class: "steps" }, line("before", row.before, "before"), line("predicted", row.planned, ""), line("measured", row.after, ""), line("lower bound", row.lower_bound, "soft")),
    later ? h("p", { class: "muted" }, later) : null,
  ].filter(Boolean);
}

function movesOf(moving, go) {
  if (!moving) return h("p", { class: "empty" }, "The journal keeps the moves of the last plan of each app. This plan ended before the console started.");
  const last = moving.offset + moving.items.length;
  return [
    table("Moves", [
      ["key groups", (row) => row.key_groups.slice(0, 3).join(", ") + (row.key_groups.length > 3 ? ` and ${row.key_groups.length - 3} more` : "")], ["from", (row) => row.source], ["to", (row) => `→ ${row.target}`],
      ["phase", (row) => h("span", { class: `badge ${{ done: "good", failed: "bad", unresolved: "bad" }[row.phase] ?? "warn"}` }, row.phase)],
      ["state", (row) => bytes(row.state_bytes), true], ["pause", (row) => seconds(row.pause_s), true], ["detail", (row) => row.detail ?? "", "says"],
    ], moving.items, "No moves."),
    moving.total > PAGE ? h("div", { class: "pager" },
      h("button", { disabled: moving.offset === 0, onclick: () => go(Math.max(0, moving.offset - PAGE)) }, "Previous"),
      `${moving.offset + 1} to ${last} of ${moving.total} hand-overs`,
      h("button", { disabled: last >= moving.total, onclick: () => go(last) }, "Next")) : null,
  ].filter(Boolean);
}

// Why each key group moves, by the events of the plan.
const reasonsOf = (told) => [
  table("Why these moves", [
    ["key group", (row) => whyLink(row.key_group)], ["from", (row) => row.source], ["to", (row) => `→ ${row.target}`], ["load of a core", (row) => percent(row.load_pct, 2), true],
    ["measured after it", (row) => percent(row.measured_pct ?? null, 2), true], ["it paid", (row) => (row.paid === true ? "yes" : row.paid === false ? h("span", { class: "badge warn" }, "no") : UNKNOWN)],
    ["outcome", (row) => h("span", { class: `badge ${{ done: "good", failed: "bad", unresolved: "bad" }[row.outcome] ?? ""}` }, row.outcome ?? "planned")], ["why", (row) => row.why ?? UNKNOWN, "says"],
  ], told.moves.slice(0, PAGE), "The events do not name its moves."),
  told.moves_total > Math.min(PAGE, told.moves.length) ? h("p", { class: "muted" }, `and ${number(told.moves_total - Math.min(PAGE, told.moves.length))} more`) : null,
];

const loadsOf = (told) => [
  table("Loads of its workers", [
    ["worker", (row) => row.worker], ["before", (row) => percent(row.before, 1), true], ["predicted", (row) => percent(row.planned, 1), true], ["measured", (row) => percent(row.measured, 1), true],
  ], told.loads.slice(0, PAGE), "The events do not name them."),
  told.mean_load === null ? null : h("p", { class: "muted" }, `Percent of the capacity; the mean is ${percent(told.mean_load, 1)}.`),
  told.proposed_at === null ? null : h("p", { class: "muted" }, `As it began. The load distance was predicted when it was proposed, ${when(told.proposed_at)}.`),
];

const plansTable = (rows) => table("Plans", [
  ["plan", (row) => h("a", { href: `#/plan/${name(row.plan)}` }, row.plan)], ["app", (row) => row.app], ["began", (row) => when(row.started_at)],
  ["took", (row) => (row.ended_at === null ? "in flight" : ago(row.ended_at - row.started_at)), true], ["moved", (row) => number(row.migrations), true],
  ["before", (row) => number(row.before, 1), true], ["predicted", (row) => number(row.planned, 1), true], ["measured", (row) => number(row.after, 1), true], ["bound", (row) => number(row.lower_bound, 1), true],
  ["why", (row) => row.reason, "says"],
], rows);
