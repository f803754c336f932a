"""Shows a job's steps while they are reported: alive on a terminal, line by line elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scheduler.units import format_duration
from service.cli.api import Api
from service.cli.job_tables import FINAL_STATES, iteration_text
from service.cli.output import Format, console, emit_line, printable
from service.cli.states import state_text
from service.cli.watch import Glance, watch

Document = dict[str, Any]

BLOCKS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 60


def follow_job(
    api: Api, job_id: str, output: Format, *, steps: bool, tick: Callable[[], None] | None = None
) -> Document:
    """Watch a job to its end and show it; its last document."""
    glances = watch(api, job_id, tick=tick)
    out = console()
    if output is not Format.TABLE or not steps or not out.is_terminal:
        return _follow_in_lines(glances, output, steps=steps)
    view = LiveView()
    with Live(console=out, refresh_per_second=4, transient=False) as live:
        for glance in glances:
            live.update(view.renderable(glance))
    return view.job


class LiveView:
    """The picture of a job in training: progress, loss curve, step time against the prediction."""

    def __init__(self) -> None:
        self.job: Document = {}
        self.losses: list[float] = []
        self.step_time_s: float | None = None

    def renderable(self, glance: Glance) -> RenderableType:
        """The picture after one more glance."""
        self.job = glance.job
        self.losses.extend(step["loss"] for step in glance.steps if step["loss"] is not None)
        if glance.steps:
            self.step_time_s = glance.steps[-1]["step_time_s"]
        job = self.job
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column()
        done, total = job["reported_steps"], job["declared_steps"]
        grid.add_row("job", Text.assemble(printable(job["name"]), "  ", state_text(job["state"])))
        grid.add_row(
            "steps", Group(ProgressBar(total=total, completed=done, width=CURVE_WIDTH), f"{done} of {total}")
        )
        if self.losses:
            curve = Text(curve_of(self.losses, CURVE_WIDTH), style="cyan")
            grid.add_row("loss", curve + Text(f"  {self.losses[-1]:.4f}", style="bold"))
        if self.step_time_s is not None:
            grid.add_row("step time", format_duration(self.step_time_s))
        grid.add_row(
            "iteration", iteration_text(job["predicted_iteration_s"], job["measured_iteration_s"]) or "–"
        )
        if job["state"] == "queued" and job["reasons"]:
            grid.add_row("waits for", printable(job["reasons"][0]["detail"]))
        return grid


def curve_of(values: list[float], width: int) -> str:
    """A line of block characters; many values are averaged into `width` columns."""
    size = max(len(values) / width, 1.0)
    columns = [
        values[int(i * size) : max(int((i + 1) * size), int(i * size) + 1)]
        for i in range(min(len(values), width))
    ]
    means = [sum(column) / len(column) for column in columns]
    low, high = min(means), max(means)
    if high == low:
        return BLOCKS[0] * len(means)
    return "".join(BLOCKS[round((mean - low) / (high - low) * (len(BLOCKS) - 1))] for mean in means)


def step_line(step: Document, job: Document) -> str:
    """`step 12/120  loss 5.1234  840ms  (600ms computing)  gradients 0.841`."""
    loss = "not a number" if step["loss"] is None else f"{step['loss']:.4f}"
    parts = [
        f"step {step['step']:>4}/{job['declared_steps']}",
        f"loss {loss}",
        format_duration(step["step_time_s"]),
    ]
    if step["compute_s"] is not None:
        parts.append(f"({format_duration(step['compute_s'])} computing)")
    if step["grad_norm"] is not None:
        parts.append(f"gradients {step['grad_norm']:.3g}")
    if step["drift"] is not None:
        parts.append(f"drift {step['drift']} of {step['drift_bound']}")
    return "  ".join(parts)


def _follow_in_lines(glances: Any, output: Format, *, steps: bool) -> Document:
    state = ""
    job: Document = {}
    for glance in glances:
        job = glance.job
        ended = job["state"] in FINAL_STATES
        if job["state"] != state and not ended:
            _tell_state(job, output, "job is ")
        state = job["state"]
        for step in glance.steps if steps else ():
            emit_line(step, output, step_line(step, job))
        if ended:
            _tell_state(job, output, "job ")
    return job


def _tell_state(job: Document, output: Format, before: str) -> None:
    if output is Format.TABLE:
        emit_line(job, output, Text.assemble(before, state_text(job["state"])))
