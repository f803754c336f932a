// What happened, newest first, as it happens.

import { h, panel, replace } from "./dom.js";
import { clock, shortId } from "./format.js";
import { jobAddress } from "./parts.js";

export function mount(main) {
  return {
    update(world) {
      replace(main, panel("Events", "newest first, live", eventList(world.events, world, "tall")));
    },
    destroy() {},
  };
}

export function eventList(events, world, kind = "") {
  if (!events.length) return h("p", { class: "empty" }, "Nothing has happened yet.");
  const names = new Map(world.jobs.map((job) => [job.job_id, job.name]));
  return h("ol", { class: `events ${kind}` }, events.map((event) => h("li", null,
    h("time", { datetime: new Date(event.at_s * 1000).toISOString() }, clock(event.at_s)),
    h("span", { class: "what" }, h("b", null, event.kind), " ", subject(event, names), details(event)))));
}

function subject(event, names) {
  if (event.object_kind !== "job") return h("span", { class: "soft" }, shortId(event.object_id));
  return h("a", { href: jobAddress(event.object_id) }, names.get(event.object_id) ?? shortId(event.object_id));
}

function details(event) {
  const { from, to, step, cause, reason, chain, why } = event.data ?? {};
  const text = [from && to ? `${from} → ${to}` : null, Number.isFinite(step) ? `step ${step}` : null, chain ?? null, cause ?? reason ?? null, why ?? null].filter((part) => typeof part === "string");
  return text.length ? h("span", { class: "faint" }, ` ${text.join(" · ")}`) : null;
}
