// What the pages show, as the API tells it: read anew when an event says that something changed, and every few seconds.

import * as api from "./api.js";
import { setRegions } from "./tints.js";

const JOBS_SHOWN = 200;
const EVENTS_KEPT = 200;
const DAY_S = 86400;
const GANTT_S = 6 * 3600;

export const emptyWorld = () => ({ now: Date.now() / 1000, regions: [], nodes: [], links: [], jobs: [], allocations: [], electricity: new Map(), events: [] });

// Reads everything but the events, which come by their stream.
export async function read(world, options) {
  const now = Math.floor(Date.now() / 1000);
  const [regions, nodes, links, jobs, allocations] = await Promise.all([
    api.pages("/v1/regions", options), api.pages("/v1/nodes", options), api.pages("/v1/links", options),
    api.get(`/v1/jobs?limit=${JOBS_SHOWN}`, options), api.pages(`/v1/allocations?from=${now - GANTT_S}&limit=500`, options),
  ]);
  Object.assign(world, { now: Date.now() / 1000, regions, nodes, links, jobs: jobs.items, allocations });
  setRegions(regions.map((region) => region.region));
}

// The electricity prices of the day, by region: [[valid from, value], …] ascending, the last known of each validity.
export async function readPrices(world, options) {
  const from = Math.floor(Date.now() / 1000 / DAY_S) * DAY_S;
  const series = await api.pages("/v1/prices?kind=electricity", options);
  const histories = await Promise.all(series.map((one) => api.get(`/v1/prices/${encodeURIComponent(one.series_id)}?from=${from}&to=${from + DAY_S}`, options)));
  world.electricity = new Map(histories.map((history) => [history.region, lastKnown(history.points)]));
}

export function addEvent(world, event) {
  if (world.events.some((known) => known.seq === event.seq)) return;
  world.events = [event, ...world.events].sort((a, b) => b.seq - a.seq).slice(0, EVENTS_KEPT);
}

function lastKnown(points) {
  const values = new Map();
  for (const point of [...points].sort((a, b) => a.known_at_s - b.known_at_s)) values.set(point.valid_from_s, point.value);
  return [...values].sort(([a], [b]) => a - b);
}
