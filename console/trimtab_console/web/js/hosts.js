// Hosts and zones: what is asked of them, what fails together, and maintenance.
import { drainZoneButton, maintenanceButton } from "./actions.js";
import { maybe, name } from "./api.js";
import { bytes, card, finder, h, number, percent, plural, show, table, UNKNOWN } from "./dom.js";
import { when } from "./events.js";
import { person } from "./session.js";

const SHOWN = 12;

// A card, and what fills it.
export function hosts() {
  const zones = h("div"), rows = h("div"), note = h("span", { class: "note" }), place = card("Hosts", "hosts", zones, rows);
  const find = finder("hosts by name", "part of a name", refresh);
  place.firstChild.append(note, find);

  async function refresh() {
    const none = { items: [], total: 0 }, sought = find.value.trim();
    const [byZone, found] = await Promise.all([maybe("zones?limit=1000", none), maybe(`hosts?order=demand&limit=${SHOWN}&name=${name(sought)}`, none)]);
    place.hidden = !found.total && !sought;
    note.textContent = found.total > found.items.length ? `the ${found.items.length} of ${number(found.total)} with the highest demand` : plural(found.total, "host");
    zones.hidden = !byZone.items.length;
    show(zones, byZone.items, () => zonesTable(byZone.items));
    show(rows, found.items, () => hostsTable(found.items, byZone.items.length > 0));
  }
  return { card: place, refresh };
}

const part = (row, what) => (row[what] === null || !row.capacity_cores ? UNKNOWN : percent((100 * row[what]) / row.capacity_cores));
const ran = (row) => (row.running < row.workers ? `${number(row.running)} of ${number(row.workers)}` : number(row.running));
const action = (button) => (person().may_change ? [["action", button, "act"]] : []);

const zonesTable = (rows) => table("Zones", [
  ["zone", (row) => row.zone ?? "not known"], ["hosts", (row) => number(row.hosts), true], ["workers run", ran, true],
  ["use", (row) => part(row, "used_cores"), true], ["demand", (row) => h("span", { class: row.demand_cores > row.capacity_cores ? "bad-text" : null }, part(row, "demand_cores")), true],
  ["capacity", (row) => `${number(row.capacity_cores, row.capacity_cores < 100 ? 1 : 0)} cores`, true],
  ...action((row) => (row.zone === null ? "" : drainZoneButton(row.zone))),
], rows);

const memory = (row) => (row.memory_bytes === null ? UNKNOWN : row.memory_limit_bytes ? `${bytes(row.memory_bytes)} of ${bytes(row.memory_limit_bytes)}` : bytes(row.memory_bytes));
const state = (row) => (row.maintenance_until !== null ? h("span", { class: "badge warn" }, `maintenance until ${when(row.maintenance_until)}`)
  : row.draining ? h("span", { class: "badge warn" }, row.draining === row.workers ? "draining" : `${row.draining} draining`) : row.running ? "" : h("span", { class: "badge" }, "no worker runs"));

const hostsTable = (rows, zoned) => table("Hosts", [
  ["host", (row) => row.host], ...(zoned ? [["zone", (row) => row.zone ?? UNKNOWN]] : []), ["workers run", ran, true], ["key groups", (row) => number(row.key_groups), true],
  ["use", (row) => percent(row.used_pct), true], ["demand", (row) => h("span", { class: row.demand_pct > 100 ? "bad-text" : null }, percent(row.demand_pct)), true],
  ["memory", memory, true], ["most used", (row) => row.bottleneck ?? UNKNOWN], ["state", state], ...action((row) => (row.workers ? maintenanceButton(row) : "")),
], rows, "There is no such host.");
