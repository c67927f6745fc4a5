// Events: what the controller decided and did, and why, as it happens.
import { maybe, name, now } from "./api.js";
import { ago, card, clock, finder, h, number, show } from "./dom.js";

const PAGE = 100;
const KINDS = ["decision", "plan", "move", "scaling", "size", "concern", "worker", "intent", "hold", "leader"];
const COLOURS = { concern: "warn", hold: "bad", move: "bad", intent: "warn", plan: "good", leader: "good" };

export function events(root) {
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Kind of event" });
  const apps = h("div", { class: "chips", role: "group", "aria-label": "App" });
  const list = card("What happened", "", h("div"));
  const find = finder("events by a part of their text", "part of a text", () => choose(() => {}));
  list.firstChild.append(h("span", { class: "note" }, "the newest first"), find);
  root.replaceChildren(h("h1", {}, "Events"), chips, apps, list);
  let kind = null, app = null, offset = 0;
  const choose = (change) => { change(); offset = 0; refresh(); };
  const chip = (text, pressed, click) => h("button", { "aria-pressed": String(pressed), "data-key": text, onclick: click }, text);

  async function refresh() {
    const query = [["kind", kind], ["app", app], ["text", find.value.trim() || null], ["offset", offset], ["limit", PAGE]].filter(([, value]) => value !== null);
    const [found, known] = await Promise.all([
      maybe(`events?${query.map(([key, value]) => `${key}=${name(value)}`).join("&")}`, { items: [], total: 0, offset: 0 }), maybe("apps", { items: [] }),
    ]);
    show(chips, kind, () => [chip("all kinds", kind === null, () => choose(() => { kind = null; })),
      ...KINDS.map((each) => chip(each, kind === each, () => choose(() => { kind = each; })))]);
    const names = known.items.map((each) => each.app);
    show(apps, [names, app], () => (names.length < 2 ? [] : [chip("all apps", app === null, () => choose(() => { app = null; })),
      ...names.map((each) => chip(each, app === each, () => choose(() => { app = each; })))]));
    show(list.lastChild, [found, new Date(now() * 1000).toDateString()], () => timeline(found, go));
  }
  const go = (to) => { offset = to; refresh(); };
  return refresh;
}

function timeline(found, go) {
  if (!found.items.length) return h("p", { class: "empty" }, "No such event is kept.");
  const last = found.offset + found.items.length;
  return [
    h("ul", { class: "list events" }, found.items.map(eventItem)),
    found.total > PAGE ? h("div", { class: "pager" },
      h("button", { disabled: found.offset === 0, onclick: () => go(Math.max(0, found.offset - PAGE)) }, "Newer"),
      `${number(found.offset + 1)} to ${number(last)} of ${number(found.total)}`,
      h("button", { disabled: last >= found.total, onclick: () => go(last) }, "Older")) : null,
  ];
}

const ENDED = new Set(["ended", "done", "measured", "skip"]);

export const eventItem = (row) => h("li", {},
  h("time", { datetime: new Date(row.at * 1000).toISOString(), title: `${ago(now() - row.at)} ago` }, when(row.at)),
  h("span", { class: "what" }, h("span", { class: `badge ${ENDED.has(row.phase) ? "" : COLOURS[row.kind] ?? ""}` }, `${row.kind} ${row.phase}`), " ",
    row.text, row.plan ? [" ", h("a", { href: `#/plan/${name(row.plan)}`, "aria-label": `plan ${row.plan}` }, row.plan)] : "",
    row.kind === "concern" && row.reason ? [" ", h("a", { href: `#/health/${name(row.reason)}` }, "runbook")] : ""));

// The time of day; with the date if it was another day.
export function when(at) {
  const date = new Date(at * 1000), today = new Date(now() * 1000);
  return date.toDateString() === today.toDateString() ? clock(at) : `${date.toLocaleDateString("en-CA")} ${clock(at)}`;
}
