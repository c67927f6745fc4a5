// The API, and what is live.

export class Problem extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

async function answered(response) {
  if (response.status === 204) return null;
  if (response.ok) return response.json();
  const problem = await response.json().catch(() => ({ detail: response.statusText }));
  throw new Problem(response.status, problem.detail);
}

const TRIES = 3;
const wait = (seconds) => new Promise((done) => { setTimeout(done, 1000 * seconds); });

// Asks again where the console has had too many requests from this address, as behind a proxy that many share.
export async function get(path) {
  for (let left = TRIES - 1; ; left -= 1) {
    const response = await fetch(`api/v1/${path}`, { headers: { accept: "application/json" } });
    if (response.status !== 429 || !left) return answered(response);
    await wait(Number(response.headers.get("retry-after")) || 1);
  }
}

// Asks for a change.  A page of another site cannot send these headers.
export const send = async (method, path, body, headers = {}) => answered(await fetch(`api/v1/${path}`, {
  method, headers: { "content-type": "application/json", "x-requested-with": "trimtab", ...headers }, body: body && JSON.stringify(body),
}));

// The answer, or `otherwise` where there is nothing to tell (404, 503).
export const maybe = (path, otherwise = null) =>
  get(path).catch((error) => { if ([404, 503].includes(error.status)) return otherwise; throw error; });

export const name = encodeURIComponent;

// The console's time in epoch seconds, by its last answer: a browser's clock may be wrong.
let ahead = 0;
export const now = () => Date.now() / 1000 + ahead;
export const setNow = (at) => { ahead = at - Date.now() / 1000; };

// Calls `changed` at most once a second while the cluster changes, and `lost` when the console does not answer.
// What it returns ends that.  The first event tells what is being asked for already.
export function live(changed, lost) {
  let due = false, at = Date.now();
  const tell = () => { due = false; at = Date.now(); changed(); };
  const source = new EventSource("api/v1/live");
  source.addEventListener("change", () => {
    if (due || document.hidden) return;
    due = true;
    setTimeout(tell, Math.max(0, at + 1000 - Date.now()));
  });
  source.addEventListener("error", lost);
  const seen = () => { if (!document.hidden) tell(); };
  document.addEventListener("visibilitychange", seen);
  return () => { source.close(); document.removeEventListener("visibilitychange", seen); };
}
