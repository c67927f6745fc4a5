// Who uses the console, and what they may do.
import { get, send } from "./api.js";

let me = { name: null, role: null, login: false, may_change: false };
export const person = () => me;

export async function ask() { me = await get("session"); return me; }
export async function logIn(token) { me = await send("POST", "session", { token }); return me; }
export async function logOut() { await send("DELETE", "session"); return ask(); }

// The token in the address, `#token=...`; it is removed from there at once, and from the browser's history.  Tokens have
// no characters that an address would escape.
export function takeToken() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, "", `${location.pathname}#/cluster`);
  return found[1];
}
