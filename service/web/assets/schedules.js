// What a job would come to under each pipeline schedule on its own chain, and the timeline of one as a picture.
// It is worked out when somebody asks for it: that takes the server some seconds.

import * as api from "./api.js";
import { h, panel, replace, svg, table } from "./dom.js";
import { bytes, duration, usd } from "./format.js";

const RUNS = { asked: "yes", not: "no" };
// What a picture may consist of: nothing that runs, loads or links.
const SHAPES = new Set(["svg", "rect", "path", "text"]);
const LOOKS = new Set(["class", "x", "y", "width", "height", "rx", "d", "viewBox", "role", "aria-label", "text-anchor"]);

export function schedules(path, signal) {
  const body = h("div", { class: "stack" });
  const say = (text, kind = "empty") => replace(body, h("p", { class: kind, role: kind === "notice" ? "alert" : "status" }, text), button());
  const button = () => h("p", null, h("button", { class: "primary", type: "button", click: () => ask("auto") }, "Compare schedules"));

  async function ask(schedule) {
    replace(body, h("p", { class: "empty", role: "status" }, `Working out every schedule, and the timeline of ${schedule} …`));
    try {
      const made = await api.get(`${path}/schedules?picture=${encodeURIComponent(schedule)}`, { signal });
      replace(body, facts(made), rows(made, schedule, ask), notes(made), advice(made.advice), drawn(made.picture));
    } catch (error) {
      if (error.name !== "AbortError") say(error.status ? error.message : "The server does not answer.", "notice");
    }
  }

  say("How long an iteration would take under other schedules, what they hold in memory, send and cost.");
  return panel("Schedules", "on the job's own stages, links and memory", body);
}

function facts(made) {
  const unpriced = made.unpriced_regions.length ? ` No price of electricity is known in ${made.unpriced_regions.join(", ")}.` : "";
  const updates = made.update_every === null ? "" : ` An update every ${made.update_every} micro-batches: only windows of whole backwards go with that${made.keeps_full ? ", and iterations run one into the other" : ""}.`;
  return h("p", { class: "soft small" }, `${made.chain.replaceAll(">", " → ")}, ${made.micro_batches} micro-batches an iteration; ${made.why}.${updates}${unpriced}`.replace("..", "."));
}

// The fastest that fits comes first, what does not fit last. A name draws its timeline.
function rows(made, shown, ask) {
  const found = made.schedules.filter((each) => each.available)
    .sort((a, b) => Number(b.fits) - Number(a.fits) || a.iteration_s - b.iteration_s);
  const asked = found.find((each) => each.schedule === made.asked);
  const columns = [["Schedule"], ["Iteration", "num"], ["To asked", "num"], ["Bubble", "num"], ["Fullest GPU", "num"], ["Fits"], ["Over links", "num"], ["1,000 steps", "num"], ["Runs"]];
  return table(columns, found.map((each) => {
    const rank = each.peak_bytes.indexOf(Math.max(...each.peak_bytes));
    const change = asked ? 100 * (each.iteration_s / asked.iteration_s - 1) : null;
    return { cells: [
      [h("button", { class: "quiet link", type: "button", "aria-pressed": String(each.schedule === shown), title: `Draw the timeline of ${each.schedule}`, click: () => ask(each.schedule) }, each.schedule),
        each.comes_to === each.schedule ? null : h("span", { class: "faint small" }, ` ${each.comes_to}`),
        each === asked ? h("span", { class: "faint small" }, " asked for") : null],
      duration(each.iteration_s),
      change === null ? "–" : `${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(1)} %`,
      `${(100 * each.bubble_fraction).toFixed(1)} %`,
      `${bytes(each.peak_bytes[rank])} of ${bytes(made.ranks[rank].memory_bytes)}`,
      each.fits ? "yes" : h("span", { class: "too-full" }, "no"),
      bytes(each.links.reduce((sum, link) => sum + link.sent_bytes, 0)),
      usd(each.usd_per_1000_steps.total),
      RUNS[each.runs],
    ] };
  }));
}

function notes(made) {
  const told = made.schedules.filter((each) => each.note);
  return told.length ? h("ul", { class: "small soft", "data-list": "notes" }, told.map((each) => h("li", null, h("b", null, each.schedule), `: ${each.note}`))) : null;
}

// What the bounds of each way to update speak for, and what they do not know.
function advice(told) {
  if (!told) return null;
  return h("div", { class: "small soft", "data-advice": told.training },
    h("p", null, h("b", null, "Advice on updates: "), `${told.training} has the lowest bound, with an update every ${told.per_update} micro-batches in the time of ${told.micro_batches.toLocaleString("en")}.`),
    h("ul", null, told.bounds.map((each) => h("li", null, each.reason))),
    h("p", null, told.notes.join(" ")));
}

function drawn(picture) {
  if (!picture) return null;
  // Its own style is for where it stands alone; here the page's holds, and the browser would complain of another.
  const bare = picture.svg.replace(/<style>[^]*?<\/style>/, "");
  const read = new DOMParser().parseFromString(bare, "image/svg+xml").documentElement;
  return h("div", { class: "scroll", "data-picture": picture.schedule }, copied(read));
}

// A copy with nothing but known shapes and looks: what the page shows is never somebody else's markup.
function copied(node) {
  if (!SHAPES.has(node.localName)) return null;
  const looks = [...node.attributes].filter((each) => LOOKS.has(each.name)).map((each) => [each.name, each.value]);
  const inside = [...node.childNodes].map((each) => (each.nodeType === Node.TEXT_NODE ? each.data : each.nodeType === Node.ELEMENT_NODE ? copied(each) : null));
  const made = svg(node.localName, Object.fromEntries(looks), inside);
  if (node.localName === "svg") made.classList.add("pipeline-timeline");
  return made;
}
