// A colour for every region, the same on every page: by the order in which the regions are listed.

const order = new Map();

export function setRegions(names) {
  [...names].sort().forEach((name, index) => order.set(name, index % 8));
}

export const tint = (region) => `tint-${order.get(region) ?? 0}`;
