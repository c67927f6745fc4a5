// Chooses the page by the address, and refreshes it while the cluster changes.
import { get, live, setNow } from "./api.js";
import { app } from "./app.js";
import { cluster } from "./cluster.js";
import { ago } from "./dom.js";
import { health } from "./health.js";
import { plan } from "./plan.js";

const PAGES = { cluster, app, plan, health };
const TITLES = { cluster: "Cluster", app: "Apps", plan: "Plans", health: "Health" };
const KINDS = { acting: "good", "dry run": "", paused: "warn", hold: "bad", silent: "bad" };
const main = document.getElementById("main"), banner = document.getElementById("banner");
let refresh = async () => {}, running = false, again = false, ticket = 0;

function open() {
  const [, page = "cluster", argument] = location.hash.split("/");
  const chosen = page in PAGES ? page : "cluster";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${chosen}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[chosen]} – Trimtab`;
  ticket += 1;
  refresh = PAGES[chosen](main, argument ? decodeURIComponent(argument) : undefined);
  update();
}

async function update() {
  if (running) { again = true; return; }
  running = true;
  const mine = ticket;
  try {
    const [summary] = await Promise.all([get("cluster"), refresh()]);
    setNow(summary.at);
    header(summary);
    main.dataset.version = summary.version;
    warn(summary.fault ? `The console cannot read Kafka: ${summary.fault}. What is shown may be old.`
      : summary.state === "silent" ? `No status from the controller for ${ago(summary.silent_s)}. Workers continue with their last placement; what is shown is that old.` : null);
  } catch (error) {
    if (mine === ticket) warn(`The console does not answer: ${error.message}`);
  }
  running = false;
  if (again) { again = false; update(); }
}

function header(summary) {
  document.getElementById("cluster").textContent = summary.cluster;
  const state = document.getElementById("state"), text = summary.state ?? (summary.read ? "no controller" : "reading");
  if (state.textContent !== text) state.textContent = text;
  state.className = `badge ${KINDS[summary.state] ?? ""}`;
  const leader = summary.controllers?.find((each) => each.leads)?.name;
  document.getElementById("age").textContent = [leader ? `${leader} leads` : null, summary.snapshot_age_s === null ? "no window yet" : `window ${ago(summary.snapshot_age_s)} old`].filter(Boolean).join(" · ");
}

function warn(text) {
  banner.hidden = !text;
  if (banner.textContent !== (text ?? "")) banner.textContent = text ?? "";
}

addEventListener("hashchange", () => { if (location.hash.startsWith("#/") || !location.hash) { open(); main.focus(); } });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
open();
live(update, () => warn("The connection to the console is lost; it is tried again."));
