// Chooses the page by the address, and refreshes it while the cluster changes.
import { get, live, setNow } from "./api.js";
import { ago } from "./dom.js";
import { ask, logIn, logOut, person, takeToken } from "./session.js";

// Each page is a module of that name, read when it is first opened.
const TITLES = { cluster: "Cluster", app: "Apps", plan: "Plans", events: "Events", why: "Why", rules: "Rules", health: "Health" };
const KINDS = { acting: "good", "dry run": "", paused: "warn", hold: "bad", silent: "bad" };
const main = document.getElementById("main"), banner = document.getElementById("banner");
const who = document.getElementById("who"), out = document.getElementById("log-out");
let entered = false, refresh = null, running = false, again = false, ticket = 0, silence = null, current = null;

// Shows the pages, or asks for a token first.
async function start(token = takeToken()) {
  let said = null;
  try {
    await ask(); // first: the answer that index.html has asked for is from before any login
    if (token && mayReplace(person())) await logIn(token).catch((error) => { said = `The token in the address is not accepted: ${error.message}`; });
  } catch (error) {
    warn(`The console does not answer: ${error.message}`);
    setTimeout(() => start(token), 2000);
    return;
  }
  if (person().login && !person().name) { askForToken(said); return; }
  enter();
}

// A link of a stranger must not make somebody act under the stranger's name without noticing.
const mayReplace = ({ name }) => !name || confirm(`You are logged in as ${name}. Log in with the token of this link instead?`);

function enter() {
  entered = true;
  warn(null);
  who.textContent = person().name ? `${person().name} (${person().role})` : "";
  who.title = person().why_not ?? "";
  out.hidden = !person().name;
  silence ??= live(update, () => warn("The connection to the console is lost; it is tried again."));
  open();
}

function leave() {
  entered = false;
  silence?.();
  silence = refresh = null;
  ticket += 1;
}

async function askForToken(said) {
  leave();
  warn(null);
  who.textContent = "";
  out.hidden = true;
  document.title = "Log in – Trimtab";
  document.getElementById("state").textContent = "not logged in";
  for (const link of document.querySelectorAll("nav a")) link.removeAttribute("aria-current");
  const mine = ticket, { login } = await import("./login.js");
  if (mine === ticket) login(main, said, enter);
}

async function open() {
  const [, page, argument] = location.hash.split("/");
  const chosen = Object.hasOwn(TITLES, page) ? page : "cluster";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${chosen}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[chosen]} – Trimtab`;
  refresh = null;
  const mine = ++ticket;
  try {
    const module = await import(`./${chosen}.js`);
    if (mine !== ticket) return;
    refresh = module[chosen](main, argument ? decodeURIComponent(argument) : undefined);
    update();
  } catch (error) {
    if (mine === ticket) warn(`The page cannot be opened: ${error.message}. Load it again.`);
  }
}

function update() {
  if (!refresh) return;
  if (running) again = true;
  else current = updated();
}

async function updated() {
  running = true;
  const mine = ticket;
  try {
    const asked = get("cluster"), [summary] = await Promise.all([asked, refresh(asked)]);
    setNow(summary.at);
    header(summary);
    main.dataset.version = summary.version;
    warn(summary.fault ? `The console cannot read Kafka: ${summary.fault}. What is shown may be old.`
      : summary.state === "silent" ? `No status from the controller for ${ago(summary.silent_s)}. Workers continue with their last placement; what is shown is that old.` : null);
  } catch (error) {
    if (mine === ticket && error.status === 401) askForToken("The session has ended.");
    else if (mine === ticket) warn(`The console does not answer: ${error.message}`);
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
  document.getElementById("leader").textContent = leader ? `${leader} leads · ` : "";
  document.getElementById("window").textContent = summary.snapshot_age_s === null ? "no window yet" : `window ${ago(summary.snapshot_age_s)} old`;
}

function warn(text) {
  banner.hidden = !text;
  if (banner.textContent !== (text ?? "")) banner.textContent = text ?? "";
}

addEventListener("hashchange", () => { if (location.hash.startsWith("#token=")) start(); else if (entered && (location.hash.startsWith("#/") || !location.hash)) { open(); main.focus(); } });
out.addEventListener("click", async () => {
  leave();
  await current; // what is being asked still needs the session
  await logOut().catch(() => {});
  askForToken(null);
});
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
start();
