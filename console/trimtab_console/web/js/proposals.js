// Plans that wait for an operator's approval: what they would move, what that costs, and the two buttons.
import { approveButton, rejectButton } from "./actions.js";
import { maybe, name, now } from "./api.js";
import { arrowsOf } from "./arrows.js";
import { ago, bytes, h, number, percent, plural, show, table } from "./dom.js";
import { whyLink } from "./why.js";

const SHOWN = 20;

// Fills a card with the plans that wait, or hides it.
export async function waiting(card) {
  const found = await maybe("proposals?limit=20", { items: [], total: 0 });
  card.hidden = !found.items.length;
  if (card.hidden) return;
  const told = await Promise.all(found.items.map((row) => maybe(`plans/${name(row.plan)}/explanation`)));
  const between = await Promise.all(found.items.map((row, at) => (told[at] ? maybe(`plans/${name(row.plan)}/moves/by-worker`) : null)));
  const left = found.items.map((row) => ago(row.expires_at - now()));
  show(card.lastChild, [found, told, between, left], () => found.items.map((row, at) => proposal(row, told[at], between[at], left[at])));
}

function proposal(row, told, between, left) {
  if (row.rejected !== null) return h("p", { class: "muted" }, `Plan ${row.plan} of ${row.app} was rejected ${row.rejected}. Nothing else is proposed for ${left}, unless loads change.`);
  const unknown = row.unmeasured ? ` and that of ${row.unmeasured} key groups of unknown size` : "";
  const warm = row.to_standbys ? `, ${number(row.to_standbys)} of them to standbys` : "";
  return h("div", { class: "proposal" },
    h("h3", {}, `Plan ${row.plan} of ${row.app}`),
    h("p", {}, h("span", { class: "badge warn" }, "waits for approval"), ` expires in ${left}`), h("p", {}, row.reason),
    h("p", {}, `load distance ${number(row.before, 1)} → ${number(row.planned, 1)} pp (bound ${number(row.lower_bound, 1)})`),
    h("p", { class: "muted" }, `${plural(row.moves_total, "move")}${warm}; ${bytes(row.restore_bytes)} of state to restore${unknown}`),
    h("p", { class: "actions" }, approveButton(row), rejectButton(row)),
    ...(between?.items.length ? arrowsOf(between) : []),
    table(`Moves of plan ${row.plan}`, [["key group", (move) => whyLink(move.key_group)], ["from", (move) => move.source], ["to", (move) => `→ ${move.target}`], ["state", (move) => bytes(move.state_bytes), true]], row.moves.slice(0, SHOWN)),
    row.moves_total > SHOWN ? h("p", { class: "muted" }, `and ${number(row.moves_total - SHOWN)} more`) : null,
    told?.loads.length ? table(`Loads with plan ${row.plan}`, [["worker", (load) => load.worker], ["now", (load) => percent(load.before, 1), true], ["predicted", (load) => percent(load.planned, 1), true]], told.loads.slice(0, SHOWN)) : null);
}
