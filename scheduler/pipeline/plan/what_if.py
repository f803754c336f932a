"""What a job on a chain of regions would come to under each schedule, before anybody runs it.

Every schedule is timed on the job's own stages, links and memory, with non-blocking sends. What an iteration takes
includes the end of it (`profile.py`); money is told by the formulas of `scheduler.cost`, at the prices of now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean

from scheduler import cost
from scheduler.cluster import Ownership
from scheduler.errors import InvalidValueError
from scheduler.job import Schedule
from scheduler.pipeline.choice import ROUNDING, choose_full_window, choose_window
from scheduler.pipeline.plan.auto import Fastest, Lag, lagged_makespan_s
from scheduler.pipeline.plan.catalogue import (
    CHIMERA,
    NOTES,
    SCHEDULES,
    WINDOWS,
    fastest_given,
    fastest_of,
    on_a_line,
    order_of,
    require_split,
)
from scheduler.pipeline.plan.ir import Op, Order, Pipeline
from scheduler.pipeline.plan.laid_out import LOOPED_REGIONS
from scheduler.pipeline.plan.layouts import Layout, line
from scheduler.pipeline.plan.order_run import order_peak_bytes, run_order
from scheduler.pipeline.plan.setting import Setting, in_line
from scheduler.pipeline.schedules import Window, strict_window
from scheduler.price import KnownPrices
from scheduler.profile import Workload, boundary_bytes
from scheduler.snapshot import Snapshot
from scheduler.units import format_duration

BILLED_STEPS = 1000


class Runs(StrEnum):
    """How a job gets a schedule."""

    ASKED = "asked"  # by its name
    NOT = "not"


@dataclass(frozen=True, slots=True)
class Usd:
    """What `BILLED_STEPS` iterations cost. Owned GPUs pay electricity, rented ones rent."""

    electricity: float
    egress: float
    rent: float

    @property
    def total(self) -> float:
        """Of all three."""
        return self.electricity + self.egress + self.rent


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What an iteration sends in one direction between two regions."""

    src: str
    dst: str
    sent_bytes: float


@dataclass(frozen=True, slots=True)
class Figures:
    """One schedule: `peak_bytes` of a GPU of each rank, `bubble_fraction` of the mean rank over the whole iteration."""

    comes_to: str
    iteration_s: float
    bubble_fraction: float
    peak_bytes: tuple[float, ...]
    fits: bool
    links: tuple[LinkUse, ...]
    usd: Usd


@dataclass(frozen=True, slots=True)
class Row:
    """A schedule with its figures; or why it has none."""

    schedule: str
    runs: Runs
    figures: Figures | None
    note: str | None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """All schedules on one placement. Regions without a known price of electricity count with 0."""

    setting: Setting
    rows: tuple[Row, ...]
    unpriced_regions: tuple[str, ...]


def what_if(snapshot: Snapshot, setting: Setting) -> WhatIf:
    """Every schedule of `SCHEDULES` in that order; where one cannot be, its row says why."""
    table = _Table(snapshot, setting)
    rows = tuple(map(table.row, SCHEDULES))
    return WhatIf(setting, rows, tuple(sorted(table.unpriced)))


class _Table:
    """Rows of one setting, and whose price nobody knows."""

    def __init__(self, snapshot: Snapshot, setting: Setting) -> None:
        self._snapshot, self._setting = snapshot, setting
        self.unpriced: set[str] = set()

    def row(self, schedule: str) -> Row:
        try:
            return Row(schedule, self._runs(schedule), self._figures(schedule), self._note(schedule))
        except InvalidValueError as error:
            return Row(schedule, Runs.NOT, None, f"{error.field} is {error.value}, it needs {error.expected}")

    def _note(self, schedule: str) -> str | None:
        if self._loops_too_far(schedule):
            return "no job is given it there: a loop stands in two regions at most"
        if schedule != Schedule.AUTO or self._setting.spec.training.update_every is not None:
            return NOTES.get(schedule)
        setting, given = self._setting, fastest_given(self._setting)
        if given.makespan_s <= fastest_of(setting).makespan_s * (1 + ROUNDING):
            return None
        iteration_s = given.makespan_s + setting.end_s(line(setting.ranks))
        return (
            f"the best of all; what this job would be given, whose workers are told no order, is "
            f"{given.schedule.value}, {format_duration(iteration_s)}"
        )

    def _runs(self, schedule: str) -> Runs:
        if schedule == CHIMERA or self._loops_too_far(schedule):
            return Runs.NOT
        told = Schedule(schedule).is_ordered
        return Runs.NOT if told and not self._setting.spec.training.splits_backward else Runs.ASKED

    def _loops_too_far(self, schedule: str) -> bool:
        """Whether its last rank would send to the first over a link that no placement is granted."""
        return (
            schedule != CHIMERA
            and Schedule(schedule).loops
            and len(self._setting.placement.regions) > LOOPED_REGIONS
        )

    def _figures(self, schedule: str) -> Figures:
        setting, m = self._setting, self._setting.micro_batches
        split = setting.split
        if setting.spec.training.update_every is not None:
            self._require_window(schedule)
        full = self._keeps_full(schedule)
        if full or schedule in WINDOWS:
            choose = choose_full_window if full else choose_window
            choice = choose(Schedule(schedule), split.chain, m, split.limits)
            return self._of_window(choice.schedule, choice.window, (), choice.timeline.makespan_s)
        if schedule == Schedule.ZB_H1:
            require_split(setting)
            window = strict_window(setting.ranks, m)
            lag = tuple(window[0] - cap for cap in window)
            return self._of_window(Schedule.ZB_H1, window, lag, lagged_makespan_s(split, window, lag, m))
        if schedule == Schedule.AUTO:
            updates = setting.spec.training.update_every is not None
            return self._of_fastest(fastest_given(setting) if updates else fastest_of(setting))
        return self._of_order(schedule, *order_of(setting, schedule))

    def _keeps_full(self, schedule: str) -> bool:
        """Whether iterations run one into the other under it."""
        work = Workload.of(self._setting.spec)
        return schedule != CHIMERA and replace(work, schedule=Schedule(schedule)).keeps_full

    def _require_window(self, schedule: str) -> None:
        """Of a job whose updates come within an iteration: whole backwards, one part a stage."""
        if schedule == CHIMERA or Schedule(schedule).is_ordered:
            raise InvalidValueError(
                "run.updates", "given", "to be left out: no update may come within this order"
            )

    def _of_fastest(self, found: Fastest) -> Figures:
        if found.rule is None:
            return self._of_window(found.schedule, found.window, found.lag, found.makespan_s)
        order = found.order(self._setting.split, self._setting.micro_batches)
        return self._of_order(found.schedule, *on_a_line(self._setting, order))

    def _of_window(self, comes_to: str, window: Window, lag: Lag, makespan_s: float) -> Figures:
        """By the formulas of windows: of any size."""
        setting, m = self._setting, self._setting.micro_batches
        profiles = setting.evaluation.stage_profiles
        peaks = tuple(
            profile.weight_bytes + (cap + behind * profile.pending_share) * profile.inflight_bytes
            for profile, cap, behind in zip(profiles, window, lag or (0,) * len(window), strict=True)
        )
        held = cost.egress_bytes_per_iteration(boundary_bytes(in_line(setting.spec)), m)
        links = tuple(
            LinkUse(src, dst, held)
            for cut in setting.placement.cuts
            for src, dst in ((cut.src, cut.dst), (cut.dst, cut.src))
        )
        splitting_s = setting.split.splitting_s if lag else (0.0,) * len(window)
        busy_s = [
            m * (profile.pace_s + more_s) for profile, more_s in zip(profiles, splitting_s, strict=True)
        ]
        allowed = all(cap <= profile.most_in_flight for cap, profile in zip(window, profiles, strict=True))
        iteration_s = makespan_s + setting.end_s(line(setting.ranks))
        return self._made(comes_to, iteration_s, busy_s, peaks, links, allowed=allowed)

    def _of_order(self, comes_to: str, pipeline: Pipeline, order: Order) -> Figures:
        setting = self._setting
        run = run_order(pipeline, order)
        costs = [stage.cost for stage in pipeline.stages]
        busy_s = [sum(costs[stage].seconds(op) for stage, op, _ in actions) for actions in order]
        chains = _layout_of(pipeline)
        return self._made(
            comes_to,
            run.makespan_s + setting.end_s(chains),
            busy_s,
            order_peak_bytes(pipeline, order),
            _sent(pipeline, order),
        )

    def _made(
        self,
        comes_to: str,
        iteration_s: float,
        busy_s: Sequence[float],
        peaks: tuple[float, ...],
        links: tuple[LinkUse, ...],
        *,
        allowed: bool = True,
    ) -> Figures:
        """`allowed` tells whether its updates allow as many micro-batches in flight."""
        # Sums of the same seconds in another order: a rank that never waits may come out a rounding above 1.
        busy = [min(1.0, each / iteration_s) for each in busy_s]
        fits = (
            all(peak <= most for peak, most in zip(peaks, self._setting.memory_bytes, strict=True))
            and allowed
        )
        usd = self._bill(iteration_s, busy, links)
        return Figures(str(comes_to), iteration_s, 1 - fmean(busy), peaks, fits, links, usd)

    def _bill(self, iteration_s: float, busy: Sequence[float], links: Sequence[LinkUse]) -> Usd:
        setting, cluster = self._setting, self._setting.cluster
        duration_s = BILLED_STEPS * iteration_s
        electricity = rent = 0.0
        powers_w = cost.segment_powers_w(setting.placement, busy, cluster.gpu_types)
        for segment, power_w in zip(setting.placement.segments, powers_w, strict=True):
            pool = cluster.pools[segment.region, segment.gpu_type]
            if pool.ownership is Ownership.RENTED:
                rent += cost.rent_usd(segment.gpus, duration_s, pool.rent_usd_per_gpu_hour)
                continue
            kilowatts = cost.facility_kw(segment.gpus, power_w, cluster.regions[segment.region].pue)
            rate = cost.electricity_usd_per_hour(self._price(segment.region), kilowatts)
            electricity += rate * duration_s / cost.SECONDS_PER_HOUR
        egress = sum(
            cost.egress_usd(BILLED_STEPS * use.sent_bytes, cluster.links[use.src, use.dst].egress_usd_per_gb)
            for use in links
        )
        return Usd(electricity, egress, rent)

    def _price(self, region: str) -> float:
        known: KnownPrices | None = self._snapshot.electricity.get(region)
        price = None if known is None else known.at(self._snapshot.now_s)
        if price is None:
            self.unpriced.add(region)
        return price or 0.0


def _layout_of(pipeline: Pipeline) -> Layout:
    """The chains of stages, by their ranks."""
    chains = []
    for first, before in enumerate(pipeline.preceding):
        if before is None:
            stage: int | None = first
            chain = []
            while stage is not None:
                chain.append(pipeline.stages[stage].rank)
                stage = pipeline.following[stage]
            chains.append(tuple(chain))
    return Layout(tuple(chains))


def _sent(pipeline: Pipeline, order: Order) -> tuple[LinkUse, ...]:
    """What crosses regions, in the order of the pipeline's links."""
    ran = Counter((stage, op is Op.FORWARD) for actions in order for stage, op, _ in actions if _gives(op))
    sent: Counter[tuple[str, str]] = Counter()
    for edge in pipeline.edges:
        here, there = (
            pipeline.workers[pipeline.stages[stage].rank].region for stage in (edge.source, edge.target)
        )
        if here != there:
            sent[here, there] += ran[edge.source, True] * edge.wire_bytes
            sent[there, here] += ran[edge.target, False] * edge.wire_bytes
    return tuple(LinkUse(*ends, float(count)) for ends, count in sent.items())


def _gives(op: Op) -> bool:
    return op is Op.FORWARD or op.passes_gradient_back
