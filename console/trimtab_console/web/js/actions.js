// What operators can ask of the controller: a button opens a dialog that says what would follow, and asks for a reason.
import { Problem, send } from "./api.js";
import { h } from "./dom.js";
import { inline } from "./markdown.js";
import { person } from "./session.js";

const PATIENCE_MS = 300;
// Where to see that it happens: [page, its name, what to look at].
const WATCH = {
  drain: ["#/cluster", "Cluster", "its key groups fall to 0, then it stops"],
  undrain: ["#/cluster", "Cluster", "it takes key groups again with the next plan"],
  pause: ["#/plan", "Plans", "a plan in flight ends, and no new one begins"],
  resume: ["#/health", "Health", "the next decision"],
  stop: ["#/plan", "Plans", "the plan ends; what was released arrives"],
  scale: ["#/app", "Apps", "the size of the app, and its workers on the page Cluster"],
  forget: ["#/health", "Health", "the decision that forgets it"],
  approve: ["#/plan", "Plans", "the plan begins under the same name"],
  reject: ["#/plan", "Plans", "the plan waits no longer"],
  move: ["#/plan", "Plans", "a plan of its own begins"],
  undo: ["#/plan", "Plans", "a plan of its own begins"],
  maintenance: ["#/cluster", "Cluster", "the key groups of its workers fall to 0, then they stop; at its end they start again"],
  "rolling-restart": ["#/cluster", "Cluster", "host by host, workers are emptied, away for a moment, and back"],
  "add-rule": ["#/rules", "Rules", "the controller tells it with its next window, and above it what cannot hold"],
  "remove-rule": ["#/rules", "Rules", "it is gone with the next window"],
  "accept-journal": ["#/health", "Health", "the hold ends, and windows are judged again"],
};

// A button for those who may change something, otherwise nothing.  `what`: { action, title, label, body, fields, danger }.
export function actionButton(text, what) {
  if (!person().may_change) return null;
  const key = `${what.action} ${JSON.stringify(what.body ?? {})}`;
  return h("button", { class: `action ${what.danger ? "danger" : ""}`, "data-key": key, "aria-label": what.label ?? null, "aria-haspopup": "dialog", onclick: () => open(what, key) }, text);
}

function open(what, key) {
  const title = h("h2", { id: "dialog-title" }, what.title), told = h("div", { class: "told", role: "status" }, "Asking what would follow…");
  const reason = h("input", { id: "reason", required: true, maxlength: 2000, autocomplete: "off", "aria-describedby": "reason-help" });
  const confirm = h("button", { class: what.danger ? "primary danger" : "primary", disabled: true }, what.title.replace(/\?$/, ""));
  const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), fields = what.fields?.(() => plan());
  const fault = h("p", { class: "fault", role: "alert" });
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); carryOut(); } }, fields?.elements ?? [], told,
    h("label", { for: "reason" }, "Reason"), reason, h("p", { id: "reason-help", class: "muted" }, `Kept with your name, ${person().name}, in the log and the status.`),
    fault, h("div", { class: "buttons" }, cancel, confirm));
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => { dialog.remove(); giveBack(key); } }, title, form);
  const body = () => ({ ...what.body, ...fields?.body() });
  const inputs = () => (fields?.elements ?? []).flatMap((each) => (each.matches("input, select") ? [each] : [...each.querySelectorAll("input, select")]));
  let asked = 0, sent = null;

  async function dryRun() {
    const mine = ++asked;
    confirm.disabled = true;
    if (inputs().some((each) => !each.checkValidity())) { told.textContent = "Fill in the form to see what would follow."; return; }
    const answer = await send("POST", `intents/${what.action}`, { ...body(), reason: "dry run", dry_run: true }).catch((error) => error);
    if (mine !== asked || !dialog.open) return;
    confirm.disabled = answer instanceof Error || !answer.intents.length;
    told.replaceChildren(...(answer instanceof Error ? [h("p", { class: "fault" }, inline(answer.message))] : lines(answer)));
  }

  async function carryOut() {
    const wanted = { ...body(), reason: reason.value.trim() }, contents = JSON.stringify(wanted);
    if (!wanted.reason) { fault.textContent = "Say why: the reason is empty."; reason.focus(); return; }
    if (sent?.contents !== contents) sent = { contents, key: newKey() }; // a second try of the same has the same key
    confirm.disabled = true;
    fault.textContent = "";
    try {
      const answer = await send("POST", `intents/${what.action}`, wanted, { "idempotency-key": sent.key });
      const close = h("button", { class: "primary", onclick: () => dialog.close() }, "Close"), [page, name, look] = WATCH[what.action];
      form.replaceWith(h("div", { role: "status" }, h("p", {}, h("span", { class: "badge good" }, answer.written ? "done" : "nothing to do")), lines(answer),
        answer.written ? h("p", { class: "muted" }, "What to watch: ", h("a", { href: page, onclick: () => dialog.close() }, name), `: ${look}.`) : null), h("div", { class: "buttons" }, close));
      close.focus();
    } catch (error) {
      fault.textContent = error instanceof Problem ? error.message : `No answer: ${error.message}. Try again: it is carried out once.`;
      confirm.disabled = false;
    }
  }

  let due = null;
  const plan = () => { clearTimeout(due); due = setTimeout(dryRun, PATIENCE_MS); };
  for (const each of inputs()) each.addEventListener("input", plan);
  document.body.append(dialog);
  dialog.showModal();
  (inputs()[0] ?? reason).focus();
  dryRun();
}

const lines = (answer) => [h("p", {}, inline(answer.text)), answer.caveats.length ? h("ul", { class: "caveats" }, answer.caveats.map((each) => h("li", {}, inline(each)))) : null].filter(Boolean);

// Focus goes back to the button, which may have been made anew meanwhile.
const giveBack = (key) => (document.querySelector(`[data-key="${CSS.escape(key)}"]`) ?? document.getElementById("main")).focus();

const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export const workerButton = (row) => (row.draining
  ? actionButton("Cancel drain", { action: "undrain", title: `Cancel the drain of ${row.worker}?`, label: `Cancel the drain of ${row.worker}`, body: { worker: row.worker } })
  : actionButton("Drain", { action: "drain", title: `Drain ${row.worker}?`, label: `Drain ${row.worker}`, body: { worker: row.worker }, danger: true }));

export const pauseButton = (paused) => (paused
  ? actionButton("Resume", { action: "resume", title: "Resume?" }) : actionButton("Pause", { action: "pause", title: "Pause?" }));

export const stopButton = (app) => (app
  ? actionButton("Stop plan", { action: "stop", title: `Stop the plan of ${app}?`, body: { app }, danger: true, label: `Stop the plan of ${app}` })
  : actionButton("Stop all plans", { action: "stop", title: "Stop all plans?", body: { pause: true }, label: "Stop all plans, and pause", danger: true }));

export const scaleButton = (app, workers) => actionButton("Scale", {
  action: "scale", title: `Scale ${app}?`, label: `Scale ${app}`, body: { app },
  fields: () => {
    const count = h("input", { id: "workers", type: "number", min: 1, max: 10000, required: true, value: workers ?? 1 });
    return { elements: [h("label", { for: "workers" }, "Workers"), count], body: () => ({ workers: count.valueAsNumber || 0 }) };
  },
});

export const unscaleButton = (app) => actionButton("Size by demand", { action: "scale", title: `Let the size of ${app} follow its demand?`, label: `Let the size of ${app} follow its demand`, body: { app, workers: null } });

export const restartButton = (app) => actionButton("Restart workers", { action: "rolling-restart", title: `Restart all workers of ${app}?`, label: `Restart all workers of ${app}`, body: { app }, danger: true });

export const endRestartButton = (app) => actionButton("Cancel restart", { action: "rolling-restart", title: `Cancel the restart of ${app}?`, label: `Cancel the restart of ${app}`, body: { app, cancel: true } });

export const forgetButton = (worker) => actionButton("Forget", { action: "forget", title: `Forget ${worker}?`, label: `Forget ${worker}`, body: { worker }, danger: true });

// For a worker whose host is lost, too: no agent reports that one as away.
export const forgetAnyButton = () => actionButton("Forget a worker", {
  action: "forget", title: "Forget a worker?", danger: true,
  fields: () => {
    const worker = h("input", { id: "worker", required: true, maxlength: 200, autocomplete: "off" });
    return { elements: [h("label", { for: "worker" }, "Worker"), worker], body: () => ({ worker: worker.value.trim() }) };
  },
});

export const forgetAppButton = (apps) => actionButton("Forget an app", {
  action: "forget", title: "Forget an app?", danger: true,
  fields: () => {
    const app = h("input", { id: "app", required: true, maxlength: 200, list: "apps", autocomplete: "off" });
    return { elements: [h("label", { for: "app" }, "App"), app, h("datalist", { id: "apps" }, apps.map((each) => h("option", { value: each })))], body: () => ({ app: app.value.trim() }) };
  },
});

const UNITS = { minutes: 60, hours: 3600, days: 86400 };

// Of a host: its workers are drained, and stay off until a time.
export const maintenanceButton = (row) => (row.maintenance_until !== null
  ? actionButton("End maintenance", { action: "maintenance", title: `End the maintenance of ${row.host}?`, label: `End the maintenance of ${row.host}`, body: { host: row.host, for_s: null } })
  : actionButton("Maintenance", {
    action: "maintenance", title: `Begin the maintenance of ${row.host}?`, label: `Maintenance of ${row.host}`, body: { host: row.host }, danger: true,
    fields: () => {
      const count = h("input", { id: "for", type: "number", min: 1, max: 1000, required: true, value: 2, class: "short" });
      const unit = h("select", { id: "unit", "aria-label": "Unit" }, Object.keys(UNITS).map((each) => h("option", { value: each, selected: each === "hours" }, each)));
      return {
        elements: [h("p", {}, "Its workers are drained, stopped, and started again at the end."), h("label", { for: "for" }, "For how long"), h("div", { class: "row" }, count, unit)],
        body: () => ({ for_s: (count.valueAsNumber || 0) * UNITS[unit.value] }),
      };
    },
  }));

export const drainZoneButton = (zone) => actionButton("Drain", { action: "drain", title: `Drain zone ${zone}?`, label: `Drain zone ${zone}`, body: { worker: `zone:${zone}` }, danger: true });

export const acceptButton = (hold) => actionButton("Accept the journal", { action: "accept-journal", title: "Accept the journal as it is?", body: { hold }, danger: true });

export const approveButton = (row) => actionButton("Approve", { action: "approve", title: `Approve plan ${row.plan}?`, label: `Approve plan ${row.plan}`, body: { plan: row.plan } });

export const rejectButton = (row) => actionButton("Reject", { action: "reject", title: `Reject plan ${row.plan}?`, label: `Reject plan ${row.plan}`, body: { plan: row.plan }, danger: true });

export const undoButton = (plan) => actionButton("Undo", {
  action: "undo", title: `Undo plan ${plan}?`, label: `Undo plan ${plan}`, body: { plan }, danger: true,
  fields: () => {
    const partly = h("input", { id: "partly", type: "checkbox" });
    return { elements: [h("label", { class: "check", for: "partly" }, partly, "Take back what can go back, if not all of it can")], body: () => ({ partly: partly.checked }) };
  },
});

export const moveButton = (keyGroup, worker) => actionButton("Move here", { action: "move", title: `Move ${keyGroup} to ${worker}?`, label: `Move ${keyGroup} to ${worker}`, body: { key_groups: [keyGroup], worker } });
