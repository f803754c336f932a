"""Does one run: draws the world, replays it under the policy, and takes the figures."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import scheduler
from scheduler.bench.figures import Figures, figures_of, offered_load
from scheduler.bench.marks import bounds_of
from scheduler.bench.plan import Run
from scheduler.bench.results import Row
from scheduler.bench.sources import Sources
from scheduler.bench.worlds import Cell, World
from scheduler.errors import SchedulerError
from scheduler.job import Schedule
from scheduler.replay.engine import replay
from scheduler.replay.jobs import ReplayJob


def prepare(sources: Sources) -> Callable[[Run, Callable[[None], None]], Row]:
    """What does the runs that a process is given. A run that the planner refuses becomes a row that says why."""

    def execute(run: Run, _: Callable[[None], None]) -> Row:
        began_s = time.perf_counter()
        figures: Figures = {}
        error = None
        try:
            figures = _figures(run, sources)
        except SchedulerError as refusal:
            error = str(refusal)
        return _row(run, time.perf_counter() - began_s, figures, error)

    return execute


def lost(run: Run, exit_code: int | None) -> Row:
    """The row of a run whose process ended: a fault of the planner, or of the machine."""
    return _row(run, 0.0, {}, f"its process ended (exit code {exit_code}); standard error says more")


def _row(run: Run, wall_s: float, figures: Figures, error: str | None) -> Row:
    return Row(
        key=run.key,
        grid=run.cell.grid,
        split=run.cell.split.value,
        cell=run.cell.name,
        draw=run.draw,
        policy=run.entry.label,
        parameters=_parameters(run.cell),
        code=code_digest(),
        wall_s=wall_s,
        figures=figures,
        error=error,
    )


@lru_cache(maxsize=1)
def code_digest() -> str:
    """A digest of the source of the planner and the replay: results of different code should not be mixed."""
    root = Path(scheduler.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        if "bench" not in path.relative_to(root).parts:
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _figures(run: Run, sources: Sources) -> Figures:
    world = _world(run.cell, run.draw, sources)
    if run.entry.config is None:
        return bounds_of(world)
    jobs = tuple(map(_choosing, world.jobs)) if run.entry.chooses_schedule else world.jobs
    result = replay(world.scenario, jobs, run.entry.config)
    return {"offered_load": offered_load(world), **figures_of(world, result)}


def _choosing(job: ReplayJob) -> ReplayJob:
    """The job with the schedule that lets the planner choose: as `slack-1f1b` every placement has the fastest window
    that fits, strict 1F1B's included, and no GPipe that fits is faster (docs/mathematics.md)."""
    training = replace(job.spec.training, schedule=Schedule.SLACK_1F1B)
    return replace(job, spec=replace(job.spec, training=training))


@lru_cache(maxsize=2)
def _world(cell: Cell, draw: int, sources: Sources) -> World:
    """Remembered, as the entries of a world come one after the other."""
    return cell.world(draw, sources)


def _parameters(cell: Cell) -> dict[str, Any]:
    """The fields of the cell, flat."""
    values: dict[str, Any] = asdict(cell)  # type: ignore[call-overload]  # every cell is a dataclass
    conduct: dict[str, Any] = values.pop("conduct")
    return {key: value for key, value in values.items() if key not in ("split", "grid", "draws")} | conduct
