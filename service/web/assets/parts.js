// Small things that several pages show: states, reasons, facts, figures, rows of jobs.

import { bar } from "./charts.js";
import { smallChain } from "./chain.js";
import { h, panel, table } from "./dom.js";
import { duration, usd } from "./format.js";

export const state = (word) => h("span", { class: `state state-${String(word).replace(/[^a-z-]/g, "")}` }, word);

export const jobAddress = (jobId) => `#/jobs/${encodeURIComponent(jobId)}`;

export const jobLink = (job) => h("a", { href: jobAddress(job.job_id), title: job.job_id }, job.name);

export function figures(pairs) {
  return h("dl", { class: "figures" }, pairs.map(([name, value, note]) => h("div", { class: "figure" },
    h("dt", null, name), h("dd", null, value), note ? h("dd", { class: "note" }, note) : null)));
}

export function reasons(list) {
  return h("ul", { class: "reasons" }, list.map((reason) => h("li", null,
    h("span", { class: "code" }, reason.code), h("span", { class: "soft" }, ` – ${reason.detail}`))));
}

export function progress(job) {
  const share = job.declared_steps ? job.reported_steps / job.declared_steps : 0;
  return h("div", { class: "usage" }, bar(share, undefined, { warns: false }), h("span", { class: "small nowrap" }, `${job.reported_steps}/${job.declared_steps}`));
}

export function jobsPanel(title, jobs, { aside = null, empty } = {}) {
  const columns = [["Job"], ["State"], ["Steps"], ["Chain"], ["Loss", "num"], ["Iteration", "num"], ["Waited", "num"], ["Time", "num"], ["Cost", "num"]];
  const rows = jobs.map((job) => ({
    address: jobAddress(job.job_id),
    cells: [
      [jobLink(job), h("div", { class: "faint small" }, job.project)],
      state(job.state),
      progress(job),
      smallChain(job.placement),
      job.last_loss === null ? "–" : job.last_loss.toFixed(3),
      duration(job.measured_iteration_s ?? job.predicted_iteration_s),
      duration(job.queueing_s),
      duration(job.jct_s),
      usd(job.cost_usd.total),
    ],
  }));
  return panel(title, aside, table(columns, rows, { empty, go: (row) => row.address }));
}
