// The regions on a ring and the links between them: grey wires as thick as their capacity, colour where it is held.

import { svg } from "./dom.js";
import { bandwidth } from "./format.js";
import { tint } from "./tints.js";

const [WIDTH, HEIGHT] = [520, 230];
const [CX, CY, RX, RY] = [WIDTH / 2, HEIGHT / 2, 165, 80];

// links: [{src, dst, planned: {capacity_bps}, reserved_bps}], directed; the two directions of a pair are one wire.
export function network(regions, links) {
  const at = new Map(regions.map((name, index) => {
    const angle = -Math.PI / 2 + (2 * Math.PI * index) / regions.length;
    return [name, [CX + RX * Math.cos(angle), CY + RY * Math.sin(angle)]];
  }));
  const most = Math.max(...links.map((link) => link.planned.capacity_bps), 1);
  return svg("svg", { class: "network", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "Links between the regions" },
    pairs(links).filter(({ a, b }) => at.has(a) && at.has(b)).map(({ a, b, capacity, reserved }) => {
      const d = wire(at.get(a), at.get(b));
      const share = capacity ? reserved / capacity : 0;
      return [
        svg("path", { class: "wire", d, "stroke-width": 1.5 + 4 * Math.sqrt(capacity / most) },
          svg("title", null, `${a} – ${b}: ${bandwidth(reserved)} of ${bandwidth(capacity)} held`)),
        share > 0 ? svg("path", { class: "flow", d, "stroke-width": 1.5 + 4 * Math.sqrt(reserved / most) }) : null,
      ];
    }),
    regions.map((name) => {
      const [x, y] = at.get(name);
      const [above, side] = [y < CY - 20, Math.abs(x - CX) > 60];
      return [
        svg("circle", { class: `dot ${tint(name)}`, cx: x, cy: y, r: 8 }),
        svg("text", {
          x: side ? x + (x > CX ? 14 : -14) : x, y: side ? y + 4 : y + (above ? -14 : 24),
          "text-anchor": side ? (x > CX ? "start" : "end") : "middle",
        }, name),
      ];
    }));
}

// A gentle bow towards the middle, so that wires do not lie on each other.
function wire([x1, y1], [x2, y2]) {
  const [mx, my] = [(x1 + x2) / 2, (y1 + y2) / 2];
  return `M${x1} ${y1}Q${mx + (CX - mx) * 0.35} ${my + (CY - my) * 0.35} ${x2} ${y2}`;
}

function pairs(links) {
  const found = new Map();
  for (const link of links) {
    const [a, b] = [link.src, link.dst].sort();
    const key = `${a}\n${b}`;
    const pair = found.get(key) ?? { a, b, capacity: 0, reserved: 0 };
    pair.capacity = Math.max(pair.capacity, link.planned.capacity_bps);
    pair.reserved = Math.max(pair.reserved, link.reserved_bps);
    found.set(key, pair);
  }
  return [...found.values()];
}
