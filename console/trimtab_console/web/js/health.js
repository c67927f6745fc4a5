// What is missing, and the runbook beside it.
import { acceptButton, forgetAnyButton, forgetAppButton, forgetButton } from "./actions.js";
import { get, maybe, name } from "./api.js";
import { decisionList } from "./cluster.js";
import { ago, card, h, number, percent, show, table } from "./dom.js";
import { when } from "./events.js";
import { markdown } from "./markdown.js";
import { person } from "./session.js";

export function health(root, wanted) {
  const findings = card("What is missing", "", h("div")), book = card("Runbook", "half", h("div", { class: "text" }));
  const intents = card("What operators asked for", "later", h("div")), decisions = card("Decisions", "later", h("div"));
  const away = card("Workers that are away", "later", h("div")), buttons = h("div", { class: "actions" });
  const rejected = card("Refused messages", "later", h("div"));
  root.replaceChildren(h("div", { class: "title" }, h("h1", {}, "Health"), buttons), h("div", { class: "stack half" }, findings, intents, away, decisions), book, rejected);

  return async (known) => {
    const [summary, concerns, asked, decided, controllers, gone, session] = await Promise.all([
      known, maybe("concerns?limit=200", { items: [], total: 0 }), maybe("intents", { items: [] }), maybe("decisions?limit=30", { items: [] }), maybe("apps", { items: [] }),
      maybe("workers?state=away&limit=50", { items: [], total: 0 }), get("session"),
    ]);
    const rows = missing(summary, concerns, controllers.items);
    if (session.failed_logins) rows.push([null, `${number(session.failed_logins)} logins have failed since the console started; its log says from where`]);
    show(findings.lastChild, rows, () => (rows.length ? h("ul", { class: "list findings" }, rows.map(([runbook, text]) =>
      h("li", {}, runbook ? h("a", { href: `#/health/${name(runbook)}` }, runbook) : null, h("span", {}, text)))) : h("p", { class: "empty" }, "Nothing: every value is there, and no app has a problem.")));
    const open = wanted ?? summary.runbook ?? rows.find(([runbook]) => runbook)?.[0];
    const text = open ? await maybe(`runbooks/${name(open)}`) : null;
    show(book.lastChild, [open, text], () => (text ? markdown(text.text) : h("p", { class: "empty" }, open ? `The runbook ${open} is not installed.` : "No runbook is needed now.")));
    show(buttons, [summary.hold_id, controllers.items.map((each) => each.app)], () => [summary.hold_id ? acceptButton(summary.hold_id) : null, forgetAnyButton(), forgetAppButton(controllers.items.map((each) => each.app))]);
    away.hidden = !gone.total;
    show(away.lastChild, gone, () => awayTable(gone));
    show(intents.lastChild, asked.items, () => intentsTable(asked.items));
    show(decisions.lastChild, decided.items, () => decisionList(decided.items));
    const refused = Object.entries(summary.rejected);
    rejected.hidden = !refused.length;
    show(rejected.lastChild, [refused, summary.refused_hosts], () => [
      table("Refused messages", [["topic and fault", ([what]) => what], ["messages", ([, count]) => number(count), true]], refused),
      refusedHosts(summary.refused_hosts),
    ]);
  };
}

// Which hosts refused messages name: a name is no proof of who sent them.
function refusedHosts({ worst, more }) {
  if (!worst.length) return null;
  const columns = [["host", (row) => row.host], ["topic and fault", (row) => `${row.topic}.${row.fault}`], ["messages", (row) => number(row.messages), true], ["last", (row) => when(row.at)]];
  return h("div", {}, h("p", { class: "muted" }, "By the host that they name, which may not be the one that sent them:"), table("Hosts that refused messages name", columns, worst), more ? h("p", { class: "muted" }, `and ${number(more)} more`) : null);
}

// [runbook, text] of each thing that is not as it should be.
function missing(summary, concerns, apps) {
  const rows = [];
  if (summary.fault) rows.push(["broker_away", `The console cannot read Kafka: ${summary.fault}`]);
  if (!summary.state) rows.push(["no_leader", summary.read ? "No controller has reported on this cluster yet." : "The topics are being read."]);
  if (summary.state === "silent") rows.push(["no_leader", `No status from the controller for ${ago(summary.silent_s)}; what is shown is that old.`]);
  if (summary.hold) rows.push(["journal", `On hold, nothing moves: ${summary.hold}`]);
  if (summary.paused) rows.push(["paused", summary.paused]);
  if (summary.state && summary.snapshot_age_s === null) rows.push(["no_snapshot", "No window has come yet."]);
  if (summary.snapshot_age_s > 60) rows.push(["stale_snapshot", `The last window ended ${ago(summary.snapshot_age_s)} ago.`]);
  if (summary.coverage !== null && summary.coverage < 1) rows.push(["low_coverage", `The last window is from ${percent(summary.coverage * 100)} of the hosts.`]);
  if (summary.controllers === null) rows.push(["broker_away", "The broker did not say who leads."]);
  else if (summary.state && summary.state !== "dry run" && !summary.controllers.some((each) => each.leads)) rows.push(["no_leader", "No controller leads."]);
  for (const row of concerns.items) rows.push([row.kind, `${row.app}: ${row.text}`]);
  if (concerns.total > concerns.items.length) rows.push([null, `and ${concerns.total - concerns.items.length} more concerns`]);
  for (const row of apps) if (row.not_ready) rows.push([row.not_ready.split(":")[0], `${row.app} is not ready: ${row.not_ready}`]);
  for (const row of apps) if (row.missing_standbys) rows.push([null, `${row.app}: ${number(row.missing_standbys)} key groups lack a standby`]);
  if (summary.totals?.unknown) rows.push([null, `${number(summary.totals.unknown)} running workers have no measured use or demand`]);
  return rows;
}

const awayTable = (gone) => [table("Workers that are away", [
  ["worker", (row) => row.worker], ["host", (row) => row.host], ["app", (row) => row.app], ["key groups", (row) => number(row.key_groups), true],
  ...(person().may_change ? [["action", (row) => forgetButton(row.worker), "act"]] : []),
], gone.items), gone.total > gone.items.length ? h("p", { class: "muted" }, `and ${gone.total - gone.items.length} more`) : null];

const whatOf = (row) => (row.kind === "drain" && row.host ? `maintenance of ${row.host}: drain ${row.about}`
  : row.kind === "rule" ? ["rule ", h("a", { href: "#/rules" }, row.about)] : [row.kind, row.about, row.workers].filter((each) => each !== null).join(" "));

const intentsTable = (rows) => table("Intents", [
  ["what", whatOf, "wrap"], ["by", (row) => row.by],
  ["at", (row) => when(row.at)], ["until", (row) => (row.until === null ? "" : when(row.until))], ["why", (row) => row.reason, "says"],
], rows, "Nothing is asked for.");
