// Why: where one key group is, since when and by which plan, and what moving it would do.
import { moveButton } from "./actions.js";
import { maybe, name, now } from "./api.js";
import { bytes, card, h, number, percent, show, table, tile, UNKNOWN } from "./dom.js";
import { when } from "./events.js";
import { person } from "./session.js";

const EVERY_S = 15; // the answer takes the console some work, and changes once a window

export const whyLink = (keyGroup, text) => h("a", { href: `#/why/${name(keyGroup)}` }, text ?? keyGroup);

export function why(root, wanted) {
  const input = h("input", { id: "key-group", value: wanted ?? "", placeholder: "orders/sums/17", autocomplete: "off", spellcheck: "false", maxlength: 500, required: true });
  const form = h("form", { class: "ask", onsubmit(event) { event.preventDefault(); location.hash = `#/why/${name(input.value.trim())}`; } },
    h("label", { for: "key-group" }, "Key group (app/operator/partition)"), input, h("button", { class: "action" }, "Why?"));
  const tiles = h("div", { class: "tiles" }), story = card("How it came there", "half", h("div")), past = card("Its moves", "half", h("div"));
  const targets = card("If it were on another worker", "", h("div")), fault = h("p", { class: "empty", role: "status" });
  root.replaceChildren(h("h1", {}, wanted ?? "Why"), card("Which key group", "", form), fault, tiles, targets, story, past);
  let asked = -EVERY_S;
  const parts = [tiles, targets, story, past];
  for (const each of parts) each.hidden = true;

  return async function refresh() {
    if (!wanted) { fault.textContent = "Name a key group, or follow the link of one on the pages Apps and Plans."; return; }
    if (now() - asked < EVERY_S) return;
    asked = now();
    const path = wanted.split("/");
    const found = path.length === 3 ? await maybe(`why/${path.map(name).join("/")}`) : null;
    for (const each of parts) each.hidden = !found;
    fault.hidden = Boolean(found);
    if (!found) { fault.textContent = `Nothing is known of ${wanted}: there is no such key group, or the topics cannot be read now.`; return; }
    show(tiles, found, () => tilesOf(found));
    show(story.lastChild, found, () => storyOf(found));
    show(targets.lastChild, found, () => targetsOf(found));
    show(past.lastChild, found.moves, () => movesTable(found.moves));
  };
}

function tilesOf(row) {
  return [
    tile("It is on", row.owner ?? row.reported ?? UNKNOWN, "", row.since === null ? "for long, or not by a plan" : `since ${when(row.since)}`),
    tile("Its load", percent(row.load_pct, 2), "", "of a core"),
    tile("Its state", bytes(row.state_bytes), "", row.standbys.length ? `standby: ${row.standbys.join(", ")}` : "no standby"),
    tile("Load distance now", number(row.load_distance, 2), "pp", `mean load ${percent(row.mean_load, 1)}`),
  ];
}

const storyOf = (row) => [
  h("p", {}, row.story, row.plan ? [" (", h("a", { href: `#/plan/${name(row.plan)}` }, `plan ${row.plan}`), ")"] : ""),
  row.reported !== null && row.owner !== null && row.reported !== row.owner
    ? h("p", { class: "warn-text" }, `${row.reported} reports it: the placement is not followed yet.`) : null,
  ...(row.rules || []).map((rule) => h("p", {}, rule)),
  row.stays ? h("p", { class: "warn-text" }, `It is not moved now: ${row.stays}.`) : null,
];

const signed = (value) => `${value < 0 ? "−" : "+"}${number(Math.abs(value), 2)}`;
const change = (row) => (row.owner || row.change === null ? "" : h("span", { class: row.change > 0.005 ? "bad-text" : "" }, signed(row.change)));
const remark = (row) => (row.owner ? "it is here" : row.forbidden ? h("span", { class: "warn-text" }, row.forbidden) : row.standby ? "standby: little to restore" : "");

function targetsOf(found) {
  if (!found.targets.length) return h("p", { class: "empty" }, found.stays ? `Nothing can be predicted: ${found.stays}.` : "No worker is known.");
  const shown = found.targets.slice(0, 50);
  return [
    table("If it were on another worker", [
      ["worker", (row) => row.worker], ["host", (row) => row.host], ["load distance", (row) => (row.load_distance === null ? UNKNOWN : `${number(row.load_distance, 2)} pp`), true],
      ["change", change, true], ["load of the worker", (row) => percent(row.load_pct, 1), true], ["remark", remark, "says"],
      ...(person().may_change ? [["action", (row) => (row.owner || row.forbidden ? "" : moveButton(found.key_group, row.worker)), "act"]] : []),
    ], shown),
    found.targets_total > shown.length ? h("p", { class: "muted" }, `and ${number(found.targets_total - shown.length)} more`) : null,
  ];
}

const movesTable = (rows) => table("Its moves", [
  ["at", (row) => when(row.at)], ["plan", (row) => (row.plan ? h("a", { href: `#/plan/${name(row.plan)}` }, row.plan) : UNKNOWN)], ["from", (row) => row.source], ["to", (row) => `→ ${row.target}`],
  ["outcome", (row) => h("span", { class: `badge ${{ done: "good", failed: "bad", unresolved: "bad" }[row.outcome] ?? "warn"}` }, row.outcome ?? "begun")], ["why", (row) => row.why ?? UNKNOWN, "says"],
], rows, "No plan has moved it, as far back as events are kept.");
