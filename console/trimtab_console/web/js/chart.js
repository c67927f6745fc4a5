// Figures over time, drawn by uPlot.
import { clock } from "./dom.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// `say(at)`: the number of the point under the pointer, or null.
export function chart(place, series, unit, say) {
  const loading = import("../vendor/uPlot.esm.js"); // beside the figures: nothing else waits for it
  let plot = null, last = null, width = 0, uPlot = null;
  const make = () => {
    plot?.destroy();
    width = place.clientWidth;
    const axis = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    plot = new uPlot({
      width, height: 215, legend: { show: false }, cursor: { points: { size: 6 } }, padding: [8, 8, 0, 0], hooks: { setCursor: [(self) => say(self.cursor.idx ?? null)] },
      scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 1) * 1.1)] } },
      axes: [{ ...axis, space: 80, values: (_, at) => at.map(clock) }, { ...axis, size: 52, values: (_, values) => values.map((value) => `${value} ${unit}`) }],
      series: [{}, ...series.map(({ colour, dash }) => ({ stroke: css(colour), width: 2, dash, spanGaps: false, points: { show: false } }))],
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
