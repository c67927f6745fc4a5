// Rules about where key groups may be: what they say, whose they are, and what cannot hold.
import { actionButton } from "./actions.js";
import { maybe, name } from "./api.js";
import { card, h, plural, show, table } from "./dom.js";
import { when } from "./events.js";
import { person } from "./session.js";

const WHERE = ["workers", "hosts", "zones"];
// Kind -> what it says of its key groups, and the fields that it has besides them.
const KINDS = {
  pool: { says: "stay on these workers, and on no others", needs: WHERE },
  exclude: { says: "are on none of these workers", needs: WHERE },
  pin: { says: "are owned by this worker; others may follow them", needs: ["worker"] },
  zone: { says: "stay in these zones", needs: ["zones"] },
  spread: { says: "have owner and standbys in different zones", needs: [], whole: true },
  freeze: { says: "stay where they are, unless their worker is lost", needs: [] },
  priority: { says: "come before those of a lower priority, where not all can", needs: ["priority"] },
};
const HOUR_S = 3600;

export function rules(root) {
  const buttons = h("div", { class: "actions" }), wrong = card("What cannot hold", "", h("div")), list = card("Rules", "", h("div"));
  const about = h("span", { class: "note" });
  list.firstChild.append(about);
  root.replaceChildren(h("div", { class: "title" }, h("h1", {}, "Rules"), buttons), wrong, list);

  return async () => {
    const none = { items: [], total: 0 };
    const [found, concerns] = await Promise.all([maybe("rules?limit=1000"), maybe("concerns?limit=1000", none)]);
    const broken = concerns.items.filter((row) => row.kind === "rules_conflict");
    wrong.hidden = !broken.length;
    show(wrong.lastChild, broken, () => h("ul", { class: "list plain" }, broken.map((row) => h("li", {}, h("b", {}, row.app), `: ${row.text} `, h("a", { href: `#/health/${name(row.kind)}` }, "What to do")))));
    show(buttons, null, () => addButton());
    about.textContent = found ? `${plural(found.total, "rule")}; the search for plans, their bound, standbys and scaling know them` : "";
    show(list.lastChild, found?.items ?? null, () => (found ? rulesTable(found.items) : h("p", { class: "empty" }, "No controller has reported yet.")));
  };
}

const words = (list) => (list.length > 4 ? `${list.slice(0, 4).join(", ")} and ${list.length - 4} more` : list.join(", "));
const any = (pattern, what) => (pattern === "*" ? `all ${what}` : pattern);
const subject = (row) => (row.operator === "*" && !row.key_groups ? any(row.app, "apps") : `${any(row.app, "apps")} / ${any(row.operator, "operators")}${row.key_groups ? ` / ${row.key_groups}` : ""}`);
const places = (row) => WHERE.filter((each) => row[each].length).map((each) => (row[each].length > 1 ? `${each} ${words(row[each])}` : `${each.slice(0, -1)} ${row[each][0]}`)).join("; ");
const whose = (row) => (row.by === null ? "controller.toml" : `${row.by}, ${when(row.at)}`);

const rulesTable = (rows) => table("Rules", [
  ["rule", (row) => row.name], ["kind", (row) => h("span", { class: "badge", title: `Its key groups ${KINDS[row.kind]?.says ?? "are placed by it"}` }, row.kind)],
  ["about", subject], ["where", (row) => places(row)], ["priority", (row) => (row.priority ? String(row.priority) : ""), true],
  ["ends", (row) => (row.until === null ? "never" : when(row.until))], ["from", whose],
  ["why", (row) => (row.ignored === null ? row.reason : [row.reason, " ", h("span", { class: "warn-text" }, `Not kept: ${row.ignored}`)]), "says"],
  ...(person().may_change && rows.some((row) => row.by !== null) ? [["action", (row) => (row.by === null ? "" : removeButton(row.name)), "act"]] : []),
], rows, "There is no rule: key groups may be on all workers of their app.");

const removeButton = (rule) => actionButton("Remove", { action: "remove-rule", title: `Remove the rule ${rule}?`, label: `Remove the rule ${rule}`, body: { name: rule } });

const listed = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);

export const addButton = () => actionButton("Add a rule", { action: "add-rule", title: "Add a rule?", fields: ruleFields });

// Only the fields that the chosen kind has are there; a value of another kind is not sent.
function ruleFields(changed) {
  const text = (id, more) => h("input", { id, maxlength: 200, autocomplete: "off", spellcheck: "false", ...more });
  const kind = h("select", { id: "rule-kind", "aria-describedby": "rule-says" }, Object.keys(KINDS).map((each) => h("option", { value: each }, each)));
  const inputs = {
    name: text("rule-name", { required: true, placeholder: "disk-fails" }), app: text("rule-app", { placeholder: "all" }), operator: text("rule-operator", { placeholder: "all" }),
    key_groups: text("rule-key-groups", { placeholder: "all, or 0-15,40" }), worker: text("rule-worker", { placeholder: "orders-3" }), workers: text("rule-workers", { placeholder: "orders-1, orders-2" }),
    hosts: text("rule-hosts", { placeholder: "rack1-*" }), zones: text("rule-zones", { placeholder: "eu-1a" }),
    priority: h("input", { id: "rule-priority", type: "number", min: -100, max: 100, value: 1 }), hours: h("input", { id: "rule-hours", type: "number", min: 1, max: 8760, placeholder: "never" }),
  };
  const labels = { name: "Name", app: "App", operator: "Operator", key_groups: "Key groups", worker: "Worker", workers: "Workers", hosts: "Hosts", zones: "Zones", priority: "Priority", hours: "Ends after hours" };
  const field = (each) => h("div", { class: "field" }, h("label", { for: inputs[each].id }, labels[each]), inputs[each]);
  const fields = Object.fromEntries(Object.keys(inputs).map((each) => [each, field(each)])), says = h("p", { id: "rule-says", class: "muted" });
  const has = (each) => KINDS[kind.value].needs.includes(each);
  const settle = () => {
    const { says: told, needs, whole } = KINDS[kind.value];
    says.textContent = `Its key groups ${told}.${needs.length > 1 ? " Name workers, hosts or zones; an asterisk stands for any text." : ""}`;
    for (const each of [...WHERE, "worker", "priority"]) fields[each].hidden = !has(each);
    for (const each of ["operator", "key_groups"]) fields[each].hidden = Boolean(whole);
    for (const each of ["worker", "priority"]) inputs[each].required = has(each);
    inputs.zones.required = kind.value === "zone";
  };
  kind.addEventListener("change", () => { settle(); changed(); });
  const until = new Map(); // the same number of hours is the same end, so that a second try is the same request
  const end = (count) => until.get(count) ?? until.set(count, Date.now() / 1000 + HOUR_S * count).get(count);
  const of = (each) => inputs[each].value.trim(), some = (each) => (fields[each].hidden ? null : of(each) || null), list = (each) => (has(each) ? listed(of(each)) : []);
  settle();
  return {
    elements: [
      h("div", { class: "fields" }, fields.name, h("div", { class: "field" }, h("label", { for: "rule-kind" }, "Kind"), kind)), says,
      h("div", { class: "fields" }, fields.app, fields.operator, fields.key_groups, fields.worker, fields.workers, fields.hosts, fields.zones, fields.priority, fields.hours),
    ],
    body: () => ({
      name: of("name"), kind: kind.value, app: some("app"), operator: some("operator"), key_groups: some("key_groups"),
      workers: has("worker") ? listed(of("worker")) : list("workers"), hosts: list("hosts"), zones: list("zones"),
      priority: has("priority") ? inputs.priority.valueAsNumber || null : null, until: inputs.hours.valueAsNumber ? end(inputs.hours.valueAsNumber) : null,
    }),
  };
}
