// Figures over time, drawn by uPlot.
import { clock } from "./dom.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const time = (at, step) => (step < 60 ? clock(at) : clock(at).slice(0, 5));

// `series`: { colour, dash }.
// `say(at)`: the number of the point under the pointer, or null.  `least`: how far the values' axis reaches, at least.
export function chart(place, series, unit, say, least = 1) {
  const loading = import("../vendor/uPlot.esm.js"); // beside the figures: nothing else waits for it
  let plot = null, last = null, width = 0, uPlot = null;
  const line = ({ colour, dash }) => ({ stroke: css(colour), width: 2, dash, spanGaps: false, points: { show: false } });
  const make = () => {
    plot?.destroy();
    width = place.clientWidth;
    const axis = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    plot = new uPlot({
      width, height: 215, legend: { show: false }, cursor: { points: { size: 6 } }, padding: [8, 8, 0, 0], hooks: { setCursor: [(self) => say(self.cursor.idx ?? null)] },
      scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(least, (high ?? least) * 1.1)] } },
      axes: [{ ...axis, space: 80, size: 26, values: (_, at, __, ___, step) => at.map((each) => time(each, step)) }, { ...axis, size: (_, texts) => 16 + 6 * Math.max(4, ...(texts ?? []).map((text) => text.length)), values: (_, values) => values.map((value) => `${value.toLocaleString("en")} ${unit}`) }],
      series: [{}, ...series.map(line)],
    }, last, place);
  };
  new ResizeObserver(() => { if (plot && place.clientWidth !== width) make(); }).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (plot) make(); });
  return async (data) => {
    last = data;
    uPlot ??= (await loading).default;
    if (plot) plot.setData(last); else make();
  };
}
