// Line charts (uPlot, global) in the colours of the theme, and the small lines on the cards.

import { svg } from "./dom.js";

// Distances between the marks of a scale that counts steps: there is no half step.
const WHOLE = [1, 2, 5].flatMap((digit) => [0, 1, 2, 3, 4, 5, 6].map((power) => digit * 10 ** power)).sort((a, b) => a - b);

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A chart that can be given new data: {element, set(data), destroy()}. `series`: [{label, token, dash?}].
export function lineChart(element, { series, unit, x = "step" }) {
  let plot = null;
  let data = null;
  const build = () => {
    plot?.destroy();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    plot = new uPlot({
      width: Math.max(element.clientWidth, 200), height: 190,
      scales: { x: { time: false } },
      cursor: { drag: { x: true, y: false } },
      axes: [{ ...axis, size: 34, incrs: WHOLE }, { ...axis, size: 66, values: (_, ticks) => ticks.map(unit) }],
      series: [{ label: x }, ...series.map(({ label, token, dash }) => ({
        label, stroke: colour(token), width: 2, dash, points: { show: false }, value: (_, value) => (value === null || value === undefined ? "–" : unit(value)),
      }))],
    }, data, element);
  };
  const resized = new ResizeObserver(() => plot?.setSize({ width: Math.max(element.clientWidth, 200), height: 190 }));
  resized.observe(element);
  document.addEventListener("theme", build);
  return {
    set(next) {
      data = next;
      if (plot) plot.setData(data); else build();
    },
    destroy() {
      resized.disconnect();
      document.removeEventListener("theme", build);
      plot?.destroy();
    },
  };
}

// A step line of [time, value] points over [from, to]; `now` is marked.
export function sparkline(points, { from, to, now, label }) {
  const inside = points.filter(([at], index) => at <= to && (points[index + 1]?.[0] ?? Infinity) > from);
  if (!inside.length) return null;
  const [width, height, edge] = [110, 34, 3];
  const values = inside.map(([, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const px = (at) => ((Math.min(Math.max(at, from), to) - from) / (to - from)) * width;
  const py = (value) => (high === low ? height / 2 : height - edge - ((value - low) / (high - low)) * (height - 2 * edge));
  let path = `M${px(inside[0][0]).toFixed(1)} ${py(inside[0][1]).toFixed(1)}`;
  let current = inside[0][1];
  inside.forEach(([at, value], index) => {
    if (index) path += `H${px(at).toFixed(1)}V${py(value).toFixed(1)}`;
    if (at <= now) current = value;
  });
  path += `H${px(to).toFixed(1)}`;
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    svg("path", { class: "area", d: `${path}V${height}H${px(inside[0][0]).toFixed(1)}Z` }),
    svg("path", { class: "line", d: path }),
    svg("line", { x1: px(now), x2: px(now), y1: 0, y2: height }),
    svg("circle", { cx: px(now), cy: py(current), r: 2.6 }));
}

// A bar that is `share` full.
// `warns`: whether a nearly full bar is worth a look; a job that is nearly done is not.
export function bar(share, label, { warns = true } = {}) {
  const filled = Math.min(Math.max(share || 0, 0), 1);
  return svg("svg", { class: "bar", role: "img", "aria-label": label ?? `${Math.round(filled * 100)} %` },
    svg("rect", { class: warns && filled > 0.9 ? "fill high" : "fill", width: `${filled * 100}%`, height: "100%" }));
}
