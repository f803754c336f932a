// The first page: what there is, what power costs, what runs, what waits and why.

import { bar, sparkline } from "./charts.js";
import { h, panel, replace, table } from "./dom.js";
import { eventList } from "./events.js";
import { bandwidth, duration, latency, price, usd } from "./format.js";
import { gantt } from "./gantt.js";
import { network } from "./network.js";
import { figures, jobLink, jobsPanel, reasons } from "./parts.js";
import { spans } from "./timeline.js";
import { tint } from "./tints.js";

const MOST_SLOTS = 48;
const MOST_LINKS = 8;
const WAITING = new Set(["queued"]);
const LIVE = new Set(["starting", "running", "stopping"]);

export function mount(main) {
  return {
    update(world) {
      const [live, waiting] = [world.jobs.filter((job) => LIVE.has(job.state)), world.jobs.filter((job) => WAITING.has(job.state))];
      replace(main,
        headline(world, live, waiting),
        panel("Regions", "price of electricity now, and over the day (UTC)", regions(world)),
        h("div", { class: "split" },
          panel("Links", "grey: capacity, colour: held by running jobs", world.regions.length > 1 ? network(world.regions.map((region) => region.region), world.links) : null, links(world.links)),
          h("div", { class: "stack" },
            queue(waiting),
            panel("GPUs over time", h("a", { href: "#/timeline" }, "timeline"), gantt(spans(world), world.regions.map((region) => region.region), world.now, { narrow: true })),
            panel("Events", h("a", { href: "#/events" }, "all events"), eventList(world.events.slice(0, 7), world)))),
        jobsPanel("Running", live, { empty: "Nothing runs." }),
        jobsPanel("Lately ended", world.jobs.filter((job) => job.finished_at_s !== null).slice(0, 8),
          { aside: h("a", { href: "#/jobs" }, "all jobs"), empty: "No job has ended yet." }));
    },
    destroy() {},
  };
}

function headline(world, live, waiting) {
  const sum = (pick) => world.regions.reduce((total, region) => total + pick(region), 0);
  const [used, total] = [sum((region) => region.gpus.used), sum((region) => region.gpus.total)];
  const prices = world.regions.map((region) => region.electricity_usd_per_kwh).filter((value) => value !== null);
  const cheapest = world.regions.find((region) => region.electricity_usd_per_kwh === Math.min(...prices));
  const spent = world.jobs.reduce((amount, job) => amount + job.cost_usd.total, 0);
  const lost = world.nodes.filter((node) => node.state === "lost").length;
  return figures([
    ["GPUs in use", [used, h("small", null, ` of ${total}`)], `${world.nodes.length} ${world.nodes.length === 1 ? "node" : "nodes"}${lost ? `, ${lost} lost` : ""}`],
    ["Running", live.length, `${world.jobs.filter((job) => job.state === "succeeded").length} succeeded`],
    ["Waiting", waiting.length, waiting.length ? `longest ${duration(Math.max(...waiting.map((job) => world.now - job.submitted_at_s)))}` : "nothing waits"],
    ["Cheapest power", [prices.length ? price(Math.min(...prices)) : "–", h("small", null, " /kWh")], cheapest?.region ?? "no price is known"],
    ["Spent so far", usd(spent), "electricity, egress and rent of the jobs shown"],
  ]);
}

function regions(world) {
  if (!world.regions.length) return h("p", { class: "empty" }, "No region yet. An agent brings its own when it joins.");
  return h("div", { class: "regions" }, world.regions.map((region) => h("article", { class: `region ${tint(region.region)}`, "data-region": region.region },
    h("div", { class: "region-head" }, h("strong", null, region.region), h("span", null, `PUE ${region.pue}`)),
    h("div", { class: "price" },
      h("div", null, h("b", null, price(region.electricity_usd_per_kwh)), h("small", null, " /kWh")),
      daySpark(world, region.region)),
    region.pools.length ? region.pools.map(pool) : h("p", { class: "faint small" }, "no node has joined"))));
}

function daySpark(world, region) {
  const points = world.electricity.get(region) ?? [];
  const from = Math.floor(world.now / 86400) * 86400;
  return sparkline(points, { from, to: from + 86400, now: world.now, label: `Price of electricity in ${region} today` });
}

function pool(one) {
  const { total, used, free, unavailable } = one.gpus;
  const rent = one.ownership === "rented" ? ` · rented at ${usd(one.rent_usd_per_gpu_hour)}/h` : "";
  const slots = (count, kind) => Array.from({ length: count }, () => h("i", { class: kind }));
  return h("div", { class: "pool" },
    h("div", { class: "pool-label" }, h("b", null, one.gpu_type), h("span", null, rent), h("span", null, `${used} used · ${free} free${unavailable ? ` · ${unavailable} unavailable` : ""}`)),
    total <= MOST_SLOTS
      ? h("div", { class: "slots", role: "img", "aria-label": `${used} of ${total} in use` }, slots(used, "used"), slots(free, null), slots(unavailable, "gone"))
      : bar(used / total, `${used} of ${total} in use`));
}

function links(list) {
  const use = (link) => (link.planned.capacity_bps ? link.reserved_bps / link.planned.capacity_bps : 0);
  const rows = [...list].sort((a, b) => use(b) - use(a)).slice(0, MOST_LINKS).map((link) => ({
    cells: [
      `${link.src} → ${link.dst}`,
      h("div", { class: "usage" }, bar(use(link)), h("span", { class: "small nowrap" }, link.reserved_bps > 0 ? bandwidth(link.reserved_bps) : "nothing")),
      figure(bandwidth(link.planned.capacity_bps), bandwidth(link.capacity_bps), bandwidth(link.measured.bandwidth_bps), link.measured.bandwidth_age_s, link.planned.capacity_why),
      figure(latency(link.planned.latency_s), latency(link.latency_s), latency(link.measured.latency_s), link.measured.latency_age_s, link.planned.latency_why),
    ],
  }));
  return table([["Link", "nowrap"], ["Held"], ["Capacity", "num"], ["One way", "num"]], rows, { empty: "No links between regions." });
}

// What planning goes by; on pointing, what was set, what was measured and when, and why it is that.
function figure(planned, set, measured, age, why) {
  const known = age === null ? "not measured" : `measured ${measured}, ${duration(age)} ago`;
  return h("span", { title: `set ${set}; ${known}; ${why}` }, planned, why === "measured" ? h("span", { class: "faint small" }, " measured") : null);
}

function queue(waiting) {
  const rows = [...waiting].sort((a, b) => (a.queue_position ?? 1e9) - (b.queue_position ?? 1e9)).map((job) => ({
    cells: [job.queue_position ?? "–", [jobLink(job), h("div", { class: "faint small" }, `for ${duration(job.queueing_s)}`)],
      job.reasons.length ? reasons(job.reasons) : h("span", { class: "soft" }, "waits for the next planning round")],
  }));
  return panel("Queue", `${waiting.length} waiting`, table([["#", "num"], ["Job"], ["Why it waits"]], rows, { empty: "Nothing waits." }));
}
