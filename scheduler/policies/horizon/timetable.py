"""The best plan for a few jobs by CP-SAT: each in one of its modes, begun now or when others have ended.

    minimise  Σ (start + score of the mode)     where Σ (start + duration of the mode) is within a bound

over modes and starts, such that at every moment the GPUs of each pool, each direction of each link, and each up- and
downlink hold what the jobs that run then ask of them: multi-mode project scheduling with renewable resources.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler.allocator import solver_for
from scheduler.cluster import Cluster, LinkKey, PoolKey
from scheduler.errors import InvalidValueError
from scheduler.policies.horizon.work import Seat

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_BANDWIDTH_UNIT_BPS: Final = 1_000_000
"""The solver counts bandwidth in these, what a mode holds and what there is rounded down."""

_Resource = tuple[str, str, str]
"""What it is (gpus, link, up, down), its region, and its GPU type or the region at the other end."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A seat as a plan sees it: its score and its duration, both in seconds, and what it holds until it ends."""

    score_s: float
    duration_s: float
    gpus: Mapping[PoolKey, int]
    cuts_bps: Mapping[LinkKey, int]
    """By direction."""
    seat: Seat

    @classmethod
    def of(cls, score_s: float, duration_s: float, seat: Seat) -> Mode:
        """What a seat with that score and that duration holds."""
        gpus: dict[PoolKey, int] = {}
        cuts: dict[LinkKey, int] = {}
        for segment in seat.placement.segments:
            pool = (segment.region, segment.gpu_type)
            gpus[pool] = gpus.get(pool, 0) + segment.gpus
        for cut in seat.placement.cuts:
            for link in ((cut.src, cut.dst), (cut.dst, cut.src)):
                cuts[link] = cuts.get(link, 0) + math.floor(cut.bandwidth_bps)
        return cls(score_s, duration_s, gpus, cuts, seat)

    def beats(self, other: Mode) -> bool:
        """Whether it is as good in everything."""
        return (
            self.score_s <= other.score_s
            and self.duration_s <= other.duration_s
            and all(held <= other.gpus.get(pool, 0) for pool, held in self.gpus.items())
            and all(held <= other.cuts_bps.get(link, 0) for link, held in self.cuts_bps.items())
        )


@dataclass(frozen=True, slots=True)
class Task:
    """A job: the modes in which it may begin from `earliest_s` on (seconds from now), and those that it can have only
    from now on."""

    job_id: str
    later: Sequence[Mode] = ()
    now: Sequence[Mode] = ()
    earliest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Timetable:
    """A plan: what it comes to, and which job begins when (seconds from now), in which mode."""

    score_s: float
    starts: Mapping[str, tuple[float, Mode]]


def best_timetable(
    tasks: Sequence[Task], cluster: Cluster, latest_s: float, most_s: float, limit: float
) -> Timetable | None:
    """The plan of the lowest sum, proven; None if none has all starts within `latest_s`, and ends of at most `most_s`
    in sum (seconds from now).

    `limit` bounds the deterministic time of the solver. Raises InvalidValueError if it proves nothing within that.
    """
    from ortools.sat.python import cp_model  # a second of import, for the few plans that need it

    model = cp_model.CpModel()
    latest = math.ceil(latest_s)
    starts: dict[str, cp_model.IntVar] = {}
    chosen: dict[str, list[tuple[cp_model.IntVar, Mode]]] = {}
    held: dict[_Resource, list[tuple[cp_model.IntervalVar, int]]] = {}
    terms: list[cp_model.LinearExprT] = []
    ends: list[cp_model.LinearExprT] = []
    for task in tasks:
        start = starts[task.job_id] = model.new_int_var(0, latest, task.job_id)
        terms.append(start)
        ends.append(start)
        literals = chosen[task.job_id] = []
        modes = [(mode, False) for mode in task.later] + [(mode, True) for mode in task.now]
        for mode, is_now in modes:
            literal = model.new_bool_var("")
            if is_now:
                model.add(start == 0).only_enforce_if(literal)
            elif task.earliest_s > 0:
                model.add(start >= math.floor(task.earliest_s)).only_enforce_if(literal)
            duration = math.floor(mode.duration_s)
            interval = model.new_optional_fixed_size_interval_var(start, duration, literal, "")
            literals.append((literal, mode))
            terms.append(literal * round(mode.score_s))
            ends.append(literal * duration)
            for resource, amount in _needs(mode):
                held.setdefault(resource, []).append((interval, amount))
        model.add_exactly_one(literal for literal, _ in literals)
    capacities = _capacities(cluster)
    for resource, intervals in held.items():
        if resource in capacities:
            amounts = [amount for _, amount in intervals]
            model.add_cumulative([each for each, _ in intervals], amounts, capacities[resource])
    if math.isfinite(most_s):
        model.add(sum(ends) <= math.ceil(most_s))
    model.minimize(sum(terms))
    solver = solver_for(0)
    solver.parameters.max_deterministic_time = limit
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    if status != cp_model.OPTIMAL:
        raise InvalidValueError("limit", limit, f"enough to prove a plan: {solver.status_name(status)}")
    plan = {
        job_id: (float(solver.value(starts[job_id])), mode)
        for job_id, literals in chosen.items()
        for literal, mode in literals
        if solver.value(literal)
    }
    return Timetable(math.fsum(start_s + mode.score_s for start_s, mode in plan.values()), plan)


def _needs(mode: Mode) -> Iterator[tuple[_Resource, int]]:
    """All that a mode holds."""
    for (region, gpu_type), gpus in mode.gpus.items():
        yield ("gpus", region, gpu_type), gpus
    out: dict[str, int] = {}
    into: dict[str, int] = {}
    for (src, dst), bps in mode.cuts_bps.items():
        amount = bps // _BANDWIDTH_UNIT_BPS
        yield ("link", src, dst), amount
        out[src] = out.get(src, 0) + amount
        into[dst] = into.get(dst, 0) + amount
    for region, amount in out.items():
        yield ("up", region, ""), amount
    for region, amount in into.items():
        yield ("down", region, ""), amount


def _capacities(cluster: Cluster) -> dict[_Resource, int]:
    """What there is of each resource; those that nothing bounds are not there."""
    found: dict[_Resource, int] = {
        ("gpus", region, gpu_type): pool.gpus for (region, gpu_type), pool in cluster.pools.items()
    }
    for (src, dst), link in cluster.links.items():
        found["link", src, dst] = math.floor(link.capacity_bps / _BANDWIDTH_UNIT_BPS)
    for name, region in cluster.regions.items():
        for side, bps in (("up", region.uplink_bps), ("down", region.downlink_bps)):
            if math.isfinite(bps):
                found[side, name, ""] = math.floor(bps / _BANDWIDTH_UNIT_BPS)
    return found
