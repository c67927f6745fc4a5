// The demand of an app: what was measured, what is forecast, and how good forecasts were beside the last value.
import { maybe, name } from "./api.js";
import { chart } from "./chart.js";
import { card, clock, cores, h, key, number, percent, show, table, UNKNOWN } from "./dom.js";
import { inline } from "./markdown.js";

// A card, and what fills it with an app.
export function demand() {
  const over = h("div", { class: "chart" }), said = h("p", { class: "said muted" }), none = h("p", { class: "empty" }, "The demand of two windows, at least, is not known yet.");
  const text = h("div"), errors = h("div"), legend = [key("line", "measured"), key("ahead", "forecast"), key("band", "± its mean error"), key("full", "capacity")];
  const place = card("Demand", "", none, over, said, h("div", { class: "beside" }, text, errors));
  place.firstChild.append(...legend);
  over.hidden = true;
  let rows = [], judged = null;
  const series = [{ colour: "--accent" }, { colour: "--demand", dash: [5, 4] }, { colour: "--demand", band: true }, { colour: "--demand", band: true }, { colour: "--bad", width: 1 }];
  const plot = chart(over, series, "cores", (at) => { said.textContent = at === null ? last() : told(rows[at]); }, 0.1);
  const last = () => told([...rows].reverse().find((row) => row.cores !== null));

  async function refresh(app) {
    const found = await maybe(`apps/${name(app.app)}/demand`);
    judged = app.size?.capacity_cores ?? null;
    rows = found ? points(found) : [];
    const known = rows.filter((row) => row.cores !== null).length > 1;
    none.hidden = known; over.hidden = said.hidden = !known;
    for (const each of legend.slice(1, 3)) each.hidden = !found?.ahead.length;
    legend[3].hidden = judged === null;
    show(text, [found?.text, found?.used, app.forecast === null], () => wording(found, app.forecast));
    show(errors, app.forecast, () => errorsTable(app.forecast));
    if (known) { await plot([rows.map((row) => row.at), ...["cores", "ahead", "low", "high", "capacity"].map((each) => rows.map((row) => row[each]))]); said.textContent = last(); }
  }
  return { card: place, refresh };

  // What was measured and what is forecast by time; the line of the forecast begins where the measured one ends.
  function points(found) {
    const error = found.error, row = (at, cores, ahead) => ({ at, cores, ahead, low: ahead === null || error === null ? null : Math.max(0, ahead - error), high: ahead === null || error === null ? null : ahead + error, capacity: judged });
    const past = found.at.map((at, place) => row(at, found.cores[place], null)), next = found.ahead_at.map((at, place) => row(at, null, found.ahead[place]));
    return [...past, ...next.filter((each) => !past.length || each.at > past.at(-1).at)];
  }
}

const told = (row) => (!row ? "" : row.ahead !== null ? `${clock(row.at)}: ${cores(row.ahead)} cores are forecast` : `${clock(row.at)}: ${row.cores === null ? "demand not known" : `demand ${cores(row.cores)} cores`}`);

function wording(found, forecast) {
  if (!found) return null;
  const state = forecast === null ? h("span", { class: "badge" }, "off") : found.used ? h("span", { class: "badge good" }, "the size follows it") : h("span", { class: "badge warn" }, "not used");
  const more = forecast?.period_s ? h("p", { class: "muted" }, `It repeats by ${forecast.period_s >= 172800 ? "week" : "day"}; ${forecast.known_s === null ? "" : `${number(forecast.known_s / 86400, 1)} days of demand are known`}.`) : null;
  return [h("p", {}, h("b", {}, "Forecast "), state), h("p", {}, inline(found.text)), more];
}

const error = (value, share) => (value === null ? UNKNOWN : `${cores(value)}${share === null ? "" : ` (${percent(share)})`}`);

function errorsTable(forecast) {
  const rows = [forecast?.near, forecast?.far].filter(Boolean);
  if (!rows.length) return null;
  return table("Mean errors of forecasts, in cores", [
    ["ahead", (row) => `${number(row.horizon_s / 60)} min`], ["forecast", (row) => error(row.error, row.error_pct), true], ["last value", (row) => error(row.last_error, row.last_error_pct), true],
    ["a period before", (row) => error(row.seasonal_error, null), true], ["verdict", (row) => (row.better ? h("span", { class: "badge good" }, "clearly better") : "not better: not followed")],
  ], rows.filter((row, at) => !at || row.horizon_s !== rows[0].horizon_s));
}
