// Allocations over time: a row for every region (or pool), a bar for every allocation's stages there.

import { h, svg } from "./dom.js";
import { clock } from "./format.js";
import { tint } from "./tints.js";

const [LEFT, RIGHT, LANE, GAP] = [112, 10, 22, 10];

// spans: [{region, gpus, job, name, from, to (null: still held), href, title}]
// `narrow`: drawn for half the width of the page, so that its letters stay readable.
export function gantt(spans, regions, now, { narrow = false } = {}) {
  if (!spans.length) return h("p", { class: "empty" }, "No job has held a GPU yet.");
  const width = narrow ? 580 : 1180;
  const start = Math.min(...spans.map((span) => span.from));
  const end = Math.max(now, ...spans.map((span) => span.to ?? now), start + 10);
  const x = (at) => LEFT + ((at - start) / (end - start)) * (width - LEFT - RIGHT);
  let y = 8;
  const rows = regions.map((region) => {
    const lanes = pack(spans.filter((span) => span.region === region), now);
    const height = Math.max(lanes.length, 1) * LANE;
    const row = { region, lanes, y, height };
    y += height + GAP;
    return row;
  });
  const height = y + 20;
  const ticks = (narrow ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]).map((share) => start + share * (end - start));
  return svg("svg", { class: "gantt", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Allocations over time" },
    rows.map((row) => [
      svg("rect", { class: "band", x: LEFT, y: row.y, width: width - LEFT - RIGHT, height: row.height, rx: 5 }),
      svg("text", { class: "name", x: 0, y: row.y + 15 }, row.region),
    ]),
    ticks.map((at, index) => [
      svg("line", { x1: x(at), x2: x(at), y1: 4, y2: y - 4 }),
      svg("text", { x: x(at), y: y + 12, "text-anchor": index === 0 ? "start" : index === ticks.length - 1 ? "end" : "middle" }, clock(at)),
    ]),
    rows.map((row) => row.lanes.map((lane, index) => lane.map((span) => bar(span, row.y + index * LANE, x, now)))),
    svg("line", { class: "now", x1: x(now), x2: x(now), y1: 2, y2: y - 2 }));
}

function bar(span, y, x, now) {
  const [left, width] = [x(span.from), Math.max(x(span.to ?? now) - x(span.from), 3)];
  return svg("a", { href: span.href, "aria-label": span.title },
    svg("title", null, span.title),
    svg("rect", { class: `span ${tint(span.region)}`, x: left, y: y + 2, width, height: LANE - 4 }),
    width > 90 ? svg("text", { class: "inside", x: left + 7, y: y + 15 }, clip(`${span.name} · ${span.gpus}`, width)) : null);
}

// Spans that overlap stand below each other.
function pack(spans, now) {
  const lanes = [];
  for (const span of [...spans].sort((a, b) => a.from - b.from)) {
    const lane = lanes.find((taken) => (taken.at(-1).to ?? now) <= span.from);
    if (lane) lane.push(span); else lanes.push([span]);
  }
  return lanes;
}

const clip = (text, width) => (text.length * 6.4 > width - 12 ? `${text.slice(0, Math.max(Math.floor((width - 20) / 6.4), 1))}…` : text);
