// A job's chain: the regions in pipeline order, the stages that stand in each, and the cuts between them.

import { h, svg } from "./dom.js";
import { bandwidth, latency, price } from "./format.js";
import { tint } from "./tints.js";

// Consecutive segments of one region (in pools of several GPU types) are drawn as one block.
export function blocks(placement) {
  const found = [];
  let stage = 0;
  for (const segment of placement?.segments ?? []) {
    const last = found.at(-1);
    const block = last?.region === segment.region ? last : { region: segment.region, stages: [], gpus: 0, types: [] };
    if (block !== last) found.push(block);
    for (let index = 0; index < segment.stages; index += 1) block.stages.push(stage + index);
    stage += segment.stages;
    block.gpus += segment.stages * segment.gpus_per_stage;
    if (!block.types.includes(segment.gpu_type)) block.types.push(segment.gpu_type);
  }
  return found;
}

export function smallChain(placement) {
  const parts = blocks(placement);
  if (!parts.length) return h("span", { class: "faint" }, "–");
  return h("span", { class: "chain" }, parts.map((block, index) => [
    index ? h("span", { class: "cut", "aria-label": "then" }, "→") : null,
    h("span", { class: `block ${tint(block.region)}` }, `${block.region} · ${block.stages.length}`),
  ]));
}

// `regions`: as the API lists them, for the price of power in each.
export function pipeline(placement, regions = []) {
  const prices = new Map(regions.map((region) => [region.region, region.electricity_usd_per_kwh]));
  return h("div", { class: "pipeline", "data-chain": blocks(placement).map((block) => `${block.region}:${block.stages.length}`).join(">") },
    blocks(placement).map((block, index) => [
      index ? crossing(placement.cuts[index - 1]) : null,
      h("div", { class: `segment ${tint(block.region)}` },
        h("h3", null, block.region),
        h("div", { class: "stages" }, block.stages.map((stage) => h("span", { class: "stage", title: `stage ${stage}` }, stage))),
        h("p", { class: "soft small" }, `${block.stages.length} ${block.stages.length === 1 ? "stage" : "stages"} on ${block.gpus} × ${block.types.join(", ")}`),
        h("p", { class: "soft small" }, `power ${price(prices.get(block.region))} /kWh now`)),
    ]));
}

function crossing(cut) {
  return h("div", { class: "crossing" },
    h("b", null, bandwidth(cut?.bandwidth_bps)),
    svg("svg", { viewBox: "0 0 92 14", "aria-hidden": "true" }, svg("path", { d: "M2 7H88M82 2L89 7L82 12M8 2L2 7L8 12" })),
    h("span", null, `${latency(cut?.latency_s)} one way`));
}
