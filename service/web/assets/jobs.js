// All jobs, newest first.

import { replace } from "./dom.js";
import { jobsPanel } from "./parts.js";

export function mount(main) {
  return {
    update(world) {
      replace(main, jobsPanel("Jobs", world.jobs, { aside: `${world.jobs.length} shown`, empty: "No jobs yet. `bace submit FILE` adds one." }));
    },
    destroy() {},
  };
}
