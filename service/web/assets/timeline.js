// Who held which GPUs when.

import { panel, replace } from "./dom.js";
import { duration } from "./format.js";
import { gantt } from "./gantt.js";
import { jobAddress } from "./parts.js";

export function mount(main) {
  return {
    update(world) {
      replace(main, panel("Allocations over time", "one bar for every region of an allocation", gantt(spans(world), world.regions.map((region) => region.region), world.now)));
    },
    destroy() {},
  };
}

// The bars of every allocation: one for each region of its chain.
export function spans(world, allocations = world.allocations) {
  return allocations.flatMap((allocation) => allocation.chain.map((part) => ({
    region: part.region,
    gpus: `${part.gpus} GPU${part.gpus === 1 ? "" : "s"}`,
    name: allocation.job_name,
    from: allocation.created_at_s,
    to: allocation.ended_at_s,
    href: jobAddress(allocation.job_id),
    title: `${allocation.job_name}, generation ${allocation.generation}: ${part.stages} stages on ${part.gpus} GPUs in ${part.region} for ${duration((allocation.ended_at_s ?? world.now) - allocation.created_at_s)}`,
  })));
}
