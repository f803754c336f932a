// One job: its chain, its loss and step time as they are reported, its cost by region, its log.

import * as api from "./api.js";
import { bar, lineChart } from "./charts.js";
import { pipeline } from "./chain.js";
import { h, panel, replace, table } from "./dom.js";
import { bandwidth, duration, energy, moment, number, usd } from "./format.js";
import { gantt } from "./gantt.js";
import { eventList } from "./events.js";
import { figures, reasons, state } from "./parts.js";
import { schedules } from "./schedules.js";
import { spans } from "./timeline.js";
import { tint } from "./tints.js";

const LOG_LINES = 200;

export function mount(main, jobId) {
  const page = { parts: null, charts: null, generation: 0, steps: [], log: [], logAfter: 0, busy: false };
  const signal = new AbortController();
  const path = `/v1/jobs/${encodeURIComponent(jobId)}`;

  async function update(world) {
    if (page.busy || signal.signal.aborted) return;
    page.busy = true;
    try {
      const options = { signal: signal.signal };
      const job = await api.get(path, { ...options, optional: true });
      if (!job) { replace(main, h("p", { class: "banner", role: "alert" }, `There is no job ${jobId}.`)); return; }
      // Steps that a later generation ran again replace those of the former.
      if (page.generation !== job.generation) Object.assign(page, { generation: job.generation, steps: [] });
      await moreSteps(page, path, options);
      await moreLog(page, path, options);
      if (signal.signal.aborted) return;
      page.parts ??= frame(main, schedules(path, signal.signal));
      draw(page, job, world);
    } finally {
      page.busy = false;
    }
  }
  return {
    update,
    destroy() {
      signal.abort();
      page.charts?.forEach((chart) => chart.destroy());
    },
  };
}

async function moreSteps(page, path, options) {
  let after = page.steps.at(-1)?.step ?? 0;
  while (after !== null) {
    const found = await api.get(`${path}/steps?after=${after}`, options);
    page.steps.push(...found.items);
    after = found.next;
  }
}

async function moreLog(page, path, options) {
  const from = page.logAfter ? `after=${page.logAfter}&limit=5000` : `tail=${LOG_LINES}`;
  const found = (await api.get(`${path}/logs?${from}`, options)).items;
  if (!found.length) return;
  page.logAfter = found.at(-1).seq;
  page.log = [...page.log, ...found].slice(-LOG_LINES);
}

function frame(main, compared) {
  const part = () => h("div", { class: "stack" });
  const chart = (name) => h("div", { class: "chart", "data-chart": name });
  const parts = { head: part(), chain: part(), promised: part(), loss: chart("loss"), gradients: chart("gradient-norm"), time: chart("step-time"), spent: part(), history: part(), log: part() };
  parts.series = h("div", { class: "split" },
    panel("Loss", "by step, as it is reported", parts.loss),
    panel("Step time", "measured, against the prediction", parts.time));
  replace(main, parts.head, parts.chain, parts.promised,
    parts.series,
    h("div", { class: "split" }, parts.spent, parts.history), compared, parts.log);
  return parts;
}

function draw(page, job, world) {
  document.title = `${job.name} · bacepipe`;
  replace(page.parts.head, head(job, world));
  replace(page.parts.chain, job.placement
    ? panel("Chain", `generation ${job.generation} · ${job.placement.schedule}`, pipeline(job.placement, world.regions), job.why ? h("p", { class: "why" }, h("b", null, "Why: "), job.why) : null)
    : null);
  replace(page.parts.promised, job.promised
    ? panel("Goes on here", `generation ${job.promised.generation} · when what it needs has been left`, pipeline(job.promised.placement, world.regions), h("p", { class: "why" }, h("b", null, "Why: "), job.promised.why))
    : null);
  charts(page, job);
  replace(page.parts.spent, spent(job));
  replace(page.parts.history, panel("Generations", null, gantt(spans(world, job.allocations), [...new Set(job.allocations.flatMap((one) => one.chain.map((part) => part.region)))], job.finished_at_s ?? world.now, { narrow: true }), stops(job)),
    panel("Events", null, eventList(world.events.filter((event) => event.object_id === job.job_id).slice(0, 12), world)));
  drawLog(page);
}

function head(job, world) {
  const share = job.declared_steps ? job.reported_steps / job.declared_steps : 0;
  const pace = [job.tokens_per_s === null ? null : `${number(job.tokens_per_s)} tokens/s`, job.mfu === null ? null : `${number(job.mfu * 100)} % MFU`].filter(Boolean).join(" · ");
  const accuracy = job.predicted_iteration_s && job.measured_iteration_s ? `${number((job.measured_iteration_s / job.predicted_iteration_s - 1) * 100)} % from the prediction` : "not measured yet";
  return h("section", { class: "job-head" },
    h("div", { class: "job-title" }, h("h1", null, job.name), state(job.state), h("span", { class: "mono faint" }, job.job_id)),
    h("div", { class: "progress" }, bar(share, `${job.reported_steps} of ${job.declared_steps} steps`, { warns: false }),
      h("span", { class: "small soft" }, `${job.reported_steps} of ${job.declared_steps} steps · checkpoint at ${job.checkpoint_step} · submitted ${moment(job.submitted_at_s)}`)),
    job.reasons.length ? h("div", { class: ["failed", "rejected"].includes(job.state) ? "notice" : "panel" },
      reasons(job.reasons), lastLines(job.reasons)) : null,
    figures([
      ["Completion time", duration(job.jct_s ?? world.now - job.submitted_at_s), job.jct_s === null ? "so far" : "from submission to end"],
      ["Waited", duration(job.queueing_s), job.queue_position === null ? null : `position ${job.queue_position} in the queue`],
      ["Iteration", duration(job.measured_iteration_s), pace ? `${accuracy} · ${pace}` : accuracy],
      ["Predicted iteration", duration(job.predicted_iteration_s), "by the timeline, for what was granted"],
      ["Loss", job.last_loss === null ? "–" : job.last_loss.toFixed(4), job.first_loss === null ? null : `began at ${job.first_loss.toFixed(4)}`],
      ...(job.last_grad_norm === null ? [] : [["Gradient norm", job.last_grad_norm.toPrecision(3), "of all stages, before clipping"]]),
      ...(job.drift === null ? [] : [["Drift", `${job.drift} of ${job.drift_bound}`, `updates between a forward and its backward · ${job.rolled_back} taken back`]]),
      ["Cost so far", usd(job.cost_usd.total), energy(job.energy_kwh.total)],
    ]));
}

function lastLines(list) {
  return list.filter((reason) => reason.last_lines?.length).map((reason) => h("pre", { class: "log mono" }, reason.last_lines.join("\n")));
}

function charts(page, job) {
  const drawn = page.steps.filter((step) => step.loss !== null);
  if (!drawn.length) {
    for (const element of [page.parts.loss, page.parts.time]) {
      if (!page.charts) replace(element, h("p", { class: "chart-empty" }, job.finished_at_s === null ? "No step has been reported yet." : "No step was reported."));
    }
    return;
  }
  if (!page.charts) {
    replace(page.parts.loss);
    replace(page.parts.time);
    page.charts = [
      lineChart(page.parts.loss, { series: [{ label: "loss", token: "--r0" }], unit: (value) => number(value) }),
      lineChart(page.parts.time, { series: [{ label: "measured", token: "--r1" }, { label: "predicted", token: "--faint", dash: [5, 5] }], unit: duration }),
    ];
  }
  const steps = drawn.map((step) => step.step);
  gradientNorms(page, steps, drawn.map((step) => step.grad_norm));
  page.charts[0].set([steps, drawn.map((step) => step.loss)]);
  page.charts[1].set([steps, drawn.map((step) => step.step_time_s), steps.map(() => job.predicted_iteration_s)]);
}

// Where stages update within a step there is no norm of all of them, and no panel.
function gradientNorms(page, steps, norms) {
  if (norms.every((norm) => norm === null)) return;
  if (page.charts.length < 3) {
    page.parts.series.classList.add("thirds");
    page.parts.series.append(panel("Gradient norm", "by step, of all stages, before clipping", page.parts.gradients));
    page.charts.push(lineChart(page.parts.gradients, { series: [{ label: "gradient norm", token: "--r2" }], unit: (value) => number(value) }));
  }
  page.charts[2].set([steps, norms]);
}

function spent(job) {
  const regions = [...new Set([...Object.keys(job.energy_kwh.by_region), ...Object.keys(job.cost_usd.by_region)])].sort();
  const nothing = { electricity: 0, egress: 0, rent: 0, total: 0 };
  const row = (name, kwh, amounts, kind) => ({ cells: [h("b", { class: kind }, name), energy(kwh), usd(amounts.electricity), usd(amounts.egress), usd(amounts.rent), usd(amounts.total)] });
  const rows = regions.map((region) => row(region, job.energy_kwh.by_region[region] ?? 0, job.cost_usd.by_region[region] ?? nothing, tint(region)));
  if (rows.length) rows.push(row("total", job.energy_kwh.total, job.cost_usd));
  const aside = job.cost_usd.unpriced_entries ? `${job.cost_usd.unpriced_entries} entries without a known price` : "from the ledger, with the prices used";
  const cuts = job.placement?.cuts ?? [];
  return [
    panel("Cost so far", aside, table([["Region"], ["Energy", "num"], ["Electricity", "num"], ["Egress", "num"], ["Rent", "num"], ["Total", "num"]], rows, { empty: "Nothing has been billed yet." })),
    cuts.length ? panel("Bandwidth held", "in each of the two directions", table([["Cut"], ["Granted", "num"]], cuts.map((cut) => ({ cells: [`${cut.src} ⇄ ${cut.dst}`, bandwidth(cut.bandwidth_bps)] })))) : null,
  ];
}

// Why generations were told to stop: by a plan in its own words, else the cause.
function stops(job) {
  const stopped = job.allocations.filter((one) => one.stop_cause);
  return stopped.length ? h("ul", { class: "small soft", "data-list": "stops" }, stopped.map((one) => h("li", null, `generation ${one.generation}: ${one.stop_why ?? one.stop_cause}`))) : null;
}

function drawLog(page) {
  const before = page.parts.log.querySelector(".log");
  const follows = !before || before.scrollTop + before.clientHeight >= before.scrollHeight - 8;
  const from = before?.scrollTop ?? 0;
  const lines = page.log.map((line) => [h("span", null, `stage ${line.stage} `), `${line.text}\n`]);
  replace(page.parts.log, panel("Log", `the last ${LOG_LINES} lines of all stages`,
    lines.length ? h("pre", { class: "log mono", tabindex: "0" }, lines) : h("p", { class: "empty" }, "No line yet.")));
  const log = page.parts.log.querySelector(".log");
  if (log) log.scrollTop = follows ? log.scrollHeight : from;
}
