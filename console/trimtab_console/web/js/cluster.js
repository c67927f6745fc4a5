// The cluster: workers against capacity and mean, apps, load distance over time.
import { pauseButton, stopButton, workerButton } from "./actions.js";
import { get, maybe, name, now } from "./api.js";
import { barAt, choosing, drawBars } from "./canvas.js";
import { chart } from "./chart.js";
import { ago, card, clock, finder, h, key, number, percent, plural, show, table, tile, times, UNKNOWN } from "./dom.js";
import { when } from "./events.js";
import { hosts } from "./hosts.js";
import { person } from "./session.js";

const SHOWN = 12;

export function cluster(root) {
  const tiles = h("div", { class: "tiles" }), canvas = h("canvas", { class: "plot bars", role: "img", "aria-label": "Use and demand of the workers" });
  const said = h("p", { class: "said muted", "aria-live": "polite" }), note = h("span", { class: "note" });
  const highest = key("ease", "highest use"), workers = card("Workers by host", "", canvas, said);
  workers.firstChild.append(note, key("use", "use"), highest, key("demand", "demand"), key("mean", "mean use"), key("full", "capacity"), key("none", "unknown"));
  const apps = card("Apps", "", h("div")), over = h("div", { class: "chart" });
  const none = h("p", { class: "empty" }, "The load distance of two windows, at least, is not known yet.");
  const figures = h("p", { class: "said" });
  const history = card("Load distance over time", "", none, over, figures), top = card("Highest demand", "", h("div"));
  const decisions = card("Last decisions", "", h("div")), byHost = hosts();
  over.hidden = true;
  history.firstChild.append(key("line", "load distance"), key("dashes", "bound of the last plan"));
  const find = finder("workers by name", "part of a name", () => findWorkers());
  top.firstChild.append(find);
  const buttons = h("div", { class: "actions" });
  root.replaceChildren(h("div", { class: "title" }, h("h1", {}, "Cluster"), buttons), tiles, workers,
    h("div", { class: "half stack" }, history, top), h("div", { class: "half stack" }, apps, decisions), byHost.card);
  let bars = null, points = [];
  const say = (at) => { said.textContent = at === null || !bars ? hint(bars) : barText(bars, at); };
  const redraw = choosing(canvas, {
    count: () => bars?.first.length ?? 0, step: () => 10, say,
    at: (x) => (bars ? barAt(canvas, x, bars.first.length) : null),
    draw: (selected) => { if (bars) drawBars(canvas, bars, selected); },
  });
  const plot = chart(over, [{ colour: "--accent" }, { colour: "--muted", dash: [5, 4] }], "pp", (at) => {
    const row = points[at ?? points.length - 1];
    figures.textContent = row ? `${clock(row.at)}: load distance ${pp(row.load_distance)}, bound ${pp(row.bound)}` : "";
  });

  const findWorkers = async () => {
    const found = await maybe(`workers?order=demand&limit=${SHOWN}&name=${name(find.value.trim())}`, { items: [], total: 0 });
    show(top.lastChild, found.items, () => workersTable(found.items));
  };

  return async (asked) => {
    const most = Math.max(40, Math.min(2000, Math.floor(canvas.clientWidth / 2.5)));
    const listed = maybe("apps", { items: [], total: 0 });
    const [summary, found, list, decided, past] = await Promise.all([
      asked, maybe(`workers/bars?most=${most}`), listed, maybe("decisions?limit=6", { items: [] }), listed.then(historyOf), findWorkers(), byHost.refresh(),
    ]);
    show(tiles, [summary.totals, list], () => tilesOf(summary.totals, list.items));
    show(buttons, summary.paused, () => [pauseButton(summary.paused), stopButton(null)]);
    show(apps.lastChild, list.items, () => appsTable(list.items));
    show(decisions.lastChild, decided.items, () => decisionList(decided.items));
    bars = found;
    if (bars) {
      canvas.setAttribute("aria-label", `Use and demand of ${bars.total} workers in percent of their capacity; arrow keys choose a bar`);
      note.textContent = bars.workers_per_bar > 1 ? `${number(bars.total)} workers, ${bars.workers_per_bar} to a bar: their mean use, and above it the highest use and demand` : plural(bars.total, "worker");
      highest.hidden = bars.workers_per_bar === 1;
      redraw();
      if (!said.textContent) say(null);
    }
    const worst = widest(list.items);
    history.firstChild.firstChild.textContent = worst ? `Load distance over time: ${worst.app}` : "Load distance over time";
    points = past;
    if (worst) {
      const known = points.filter((row) => row.load_distance !== null).length > 1;
      none.hidden = known; over.hidden = !known;
      if (known) await plot([points.map((row) => row.at), points.map((row) => row.load_distance), points.map((row) => row.bound)]);
    }
  };
}

const historyOf = async (list) => {
  const worst = widest(list.items);
  return worst ? (await get(`apps/${name(worst.app)}/history`)).items.reverse() : [];
};
const hint = (bars) => (bars ? "Point at a bar, or use the arrow keys, to read its values." : "No worker has reported yet.");
const widest = (apps) => [...apps].sort((a, b) => (b.load_distance ?? -1) - (a.load_distance ?? -1))[0];
const most = (apps, of) => Math.max(...apps.map(of).filter((value) => value !== null && value !== undefined));
const least = (apps, of) => Math.min(...apps.map(of).filter((value) => value !== null && value !== undefined));
const cores = (totals, what) => number(totals[`${what}_cores`], totals.capacity_cores < 100 ? 1 : 0);
const pp = (value) => (value === null ? UNKNOWN : `${number(value, 1)} pp`);
const finite = (value) => (Number.isFinite(value) ? value : null);

function barText(bars, at) {
  const several = bars.count[at] > 1 ? ` and ${bars.count[at] - 1} more: the highest of each (mean use ${percent(bars.used_mean[at])})` : "";
  const remark = bars.remark[at] ? `, ${bars.remark[at]}` : "";
  return `${bars.first[at]} on ${bars.host[at]}${bars.zone[at] ? `, ${bars.zone[at]}` : ""}${several}: use ${percent(bars.used[at])}, demand ${percent(bars.demand[at])}, load of its key groups ${percent(bars.load[at])}${remark}`;
}

function tilesOf(totals, apps) {
  const worst = widest(apps), head = finite(least(apps, (row) => row.capacity?.headroom)), loss = finite(most(apps, (row) => row.n_minus_1_pct));
  const standbys = apps.map((row) => row.missing_standbys).filter((value) => value !== null);
  const lacking = standbys.length ? standbys.reduce((a, b) => a + b) : null;
  const full = totals && totals.capacity_cores && totals.demand_cores !== null ? (100 * totals.demand_cores) / totals.capacity_cores : null;
  return [
    tile("Workers running", totals ? number(totals.running) : UNKNOWN, totals && totals.running < totals.workers ? `of ${number(totals.workers)}` : "", totals ? `on ${number(totals.hosts)} ${totals.hosts === 1 ? "host" : "hosts"}` : ""),
    tile("Demand", percent(full), "", totals ? `${cores(totals, "demand")} of ${cores(totals, "capacity")} cores; in use ${cores(totals, "used")}${totals.unknown ? `; ${totals.unknown} workers unknown` : ""}` : "", full > 100 ? "bad" : full > 85 ? "warn" : ""),
    tile("Load distance", number(worst?.load_distance ?? null, 1), "pp", worst ? `${worst.app}, noise ${number(worst.noise, 1)} pp` : ""),
    tile("Headroom", times(head), "", "of the present input, as placed", head !== null && head < 1 ? "bad" : ""),
    tile("After the loss of a host", percent(loss), "", "highest load of any worker (N-1)", loss > 100 ? "bad" : ""),
    tile("Lack a standby", number(lacking), "", "key groups", lacking ? "warn" : ""),
  ];
}

const appsTable = (apps) => table("Apps", [
  ["app", (row) => h("a", { href: `#/app/${name(row.app)}` }, row.app)], ["key groups", (row) => number(row.key_groups), true],
  ["load distance", (row) => (row.load_distance === null ? UNKNOWN : `${number(row.load_distance, 1)} pp`), true],
  ["mean load", (row) => percent(row.mean_load), true], ["N-1", (row) => percent(row.n_minus_1_pct), true],
  ["headroom", (row) => times(row.capacity?.headroom), true],
], apps, "No app has reported yet.");

export const workersTable = (workers) => table("Workers", [
  ["worker", (row) => row.worker], ["host", (row) => row.host], ["use", (row) => percent(row.used_pct), true],
  ["demand", (row) => h("span", { class: row.demand_pct > 100 ? "bad-text" : null }, percent(row.demand_pct)), true],
  ["load", (row) => percent(row.load_pct), true], ["key groups", (row) => number(row.key_groups), true], ["backlog", (row) => number(row.backlog), true],
  ...(person().may_change ? [["action", workerButton, "act"]] : []),
], workers, "There is no such worker, or none has reported yet.");

export const decisionList = (rows) => (rows.length
  ? h("ul", { class: "list" }, rows.map((row) => h("li", {}, h("time", { title: `${ago(now() - row.at)} ago` }, when(row.at)), h("span", {}, row.text))))
  : h("p", { class: "empty" }, "No decision has been made yet."));
