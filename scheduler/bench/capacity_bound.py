"""Lower bounds of the mean completion time that know the capacity of the cluster: a linear program.

Jobs are fluid: in every interval of time each may run on any mixture of its options, and all that binds is the
number of GPUs in the cluster and that a job runs once at a time. No gangs, no regions, no links, and everything known
beforehand. With y the fraction of a job done by option k in interval i, which begins at b_i:

    minimise    mean over the jobs of  Σ y·b_i + half  (− release)
    subject to  Σ y = 1 for each job,   Σ y·T_k ≤ length of i for each job and i,   Σ y·W_k ≤ GPUs·length of i

where T is the duration and W the GPU-seconds of an option. Σ y·b_i is at most the mean busy time of the job: the time
at which its work is done in the mean. A job that works at a rate of at most 1/T_min ends at least T_min/2 after that
(`strict`, which binds every policy); one that keeps one option from begin to end ends T_k/2 after it (`moldable`, which
binds the policies that never stop a job: the mean-busy-time form of Goemans 1997, with options added).

What a job does later than its `reach_s` after its release counts as done then and takes no capacity: that only lowers
the bound, and keeps the program small where many jobs come one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any

from ortools.linear_solver import pywraplp

from scheduler.bench.alone import Option
from scheduler.errors import InvalidValueError


@dataclass(frozen=True, slots=True)
class Demand:
    """A job as the bound sees it: when it is submitted, what it may run on, and how far the program looks at it."""

    release_s: float
    options: tuple[Option, ...]
    reach_s: float


@dataclass(frozen=True, slots=True)
class CapacityBound:
    """Bounds of the mean time from release to end."""

    strict_s: float
    moldable_s: float


@lru_cache(maxsize=32)
def capacity_bound(demands: tuple[Demand, ...], gpus: int, step_s: float) -> CapacityBound:
    """Both bounds, with time cut into intervals of `step_s`: shorter ones take time and bring the bound closer.

    Remembered, as many worlds have the same jobs on as many GPUs.

    Raises InvalidValueError where there is no job.
    """
    if not demands:
        raise InvalidValueError("demands", len(demands), "at least one job")
    columns = [_Columns.of(demand, step_s) for demand in demands]
    released_s = math.fsum(demand.release_s for demand in demands)
    half_least_s = math.fsum(each.options[0].duration_s for each in columns) / 2
    strict_s = _least(columns, gpus, step_s, from_option=0.0) + half_least_s
    moldable_s = _least(columns, gpus, step_s, from_option=0.5)
    return CapacityBound((strict_s - released_s) / len(demands), (moldable_s - released_s) / len(demands))


def drain_s(choices: Sequence[tuple[Option, ...]], gpus: int) -> float:
    """How long jobs with these options take at their least work on a full cluster, and the longest of them at its
    fastest after that: a reach that leaves hardly anything beyond it where all come together."""
    least = math.fsum(min(option.gpu_seconds for option in choice) for choice in choices)
    longest_s = max(min(option.duration_s for option in choice) for choice in choices)
    return least / gpus + longest_s


def worthwhile(options: Sequence[Option]) -> tuple[Option, ...]:
    """The options that no mixture of others beats on time and on GPU-seconds at once, fastest first."""
    hull: list[Option] = []
    for option in sorted(options, key=lambda each: (each.duration_s, each.gpu_seconds)):
        if hull and option.gpu_seconds >= hull[-1].gpu_seconds:
            continue
        while len(hull) > 1 and not _turns_up(hull[-2], hull[-1], option):
            hull.pop()
        hull.append(option)
    return tuple(hull)


def _turns_up(a: Option, b: Option, c: Option) -> bool:
    """Whether b lies below the line from a to c."""
    return (b.gpu_seconds - a.gpu_seconds) * (c.duration_s - a.duration_s) < (
        c.gpu_seconds - a.gpu_seconds
    ) * (b.duration_s - a.duration_s)


@dataclass(frozen=True, slots=True)
class _Columns:
    """A job's part of the program: its options, fastest first, and the intervals within its reach."""

    options: tuple[Option, ...]
    first: int
    begins_s: tuple[float, ...]
    lengths_s: tuple[float, ...]
    beyond_s: float

    @classmethod
    def of(cls, demand: Demand, step_s: float) -> _Columns:
        beyond_s = demand.release_s + demand.reach_s
        first, last = math.floor(demand.release_s / step_s), math.ceil(beyond_s / step_s)
        begins_s = tuple(max(index * step_s, demand.release_s) for index in range(first, last))
        ends_s = [(index + 1) * step_s for index in range(first, last)]
        lengths_s = tuple(end_s - begin_s for begin_s, end_s in zip(begins_s, ends_s, strict=True))
        return cls(worthwhile(demand.options), first, begins_s, lengths_s, beyond_s)


def _least(columns: Sequence[_Columns], gpus: int, step_s: float, from_option: float) -> float:
    """The least sum over the jobs of where their work is done, plus `from_option` times the duration of the option."""
    solver = pywraplp.Solver.CreateSolver("GLOP")
    infinity = solver.infinity()
    capacity: dict[int, Any] = {}
    objective = solver.Objective()
    objective.SetMinimization()
    for job in columns:
        done = solver.Constraint(1.0, 1.0)
        beyond = solver.NumVar(0.0, infinity, "")
        done.SetCoefficient(beyond, 1.0)
        objective.SetCoefficient(beyond, job.beyond_s + from_option * job.options[0].duration_s)
        for index, begin_s, length_s in zip(count(job.first), job.begins_s, job.lengths_s, strict=False):
            if index not in capacity:
                capacity[index] = solver.Constraint(-infinity, gpus * step_s)
            once = solver.Constraint(-infinity, length_s)
            for option in job.options:
                part = solver.NumVar(0.0, infinity, "")
                objective.SetCoefficient(part, begin_s + from_option * option.duration_s)
                done.SetCoefficient(part, 1.0)
                once.SetCoefficient(part, option.duration_s)
                capacity[index].SetCoefficient(part, option.gpu_seconds)
    status = solver.Solve()
    if status != pywraplp.Solver.OPTIMAL:
        raise InvalidValueError("demands", status, "a linear program that can be solved")
    return float(objective.Value())
