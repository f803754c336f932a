"""What one decision of horizon leaves to be had, on instances that CP-SAT proves."""

from dataclasses import replace
from statistics import fmean

import pytest

from scheduler.bench.optimal.gap import gaps
from scheduler.bench.optimal.instances import drawn_snapshot
from scheduler.errors import InvalidValueError
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.policies.horizon.timetable import Mode, Task, best_timetable
from scheduler.policies.horizon.work import Seat
from tests import worlds

JOINT, APART = "joint", "one after the other"
CONFIGS = {JOINT: HorizonConfig(), APART: HorizonConfig(joint_jobs=0)}
QUICK = (0, 1, 3, 4, 6, 8, 10, 12, 14, 20)
"""Seeds of instances that are proven within a second."""


def mode(score_s: float, duration_s: float, gpus: int) -> Mode:
    placement = None
    return Mode(
        score_s, duration_s, {("a", "g"): gpus}, {}, Seat(placement, 1.0, 0.0, (), (), 0.0, 0.0, 0.0, 0.0, ())
    )  # type: ignore[arg-type]


def test_a_decision_is_within_three_per_cent_of_the_best_in_the_mean() -> None:
    found = [gaps(drawn_snapshot(seed), CONFIGS) for seed in QUICK]
    assert all(gap.part >= -1e-3 for each in found for gap in each.values())
    assert fmean(each[JOINT].part for each in found) <= 0.03
    assert fmean(each[APART].part for each in found) > 0.03  # so there is something to be found


def test_an_instance_is_its_seed_alone() -> None:
    assert drawn_snapshot(3) == drawn_snapshot(3)
    assert drawn_snapshot(3).running
    assert replace(drawn_snapshot(4), running=()) == drawn_snapshot(4)


def test_the_timetable_makes_a_job_wait_where_that_is_less_than_what_it_would_take_from_another() -> None:
    cluster = worlds.cluster({"a": 4})
    tasks = [
        Task("long", [mode(100, 100, 4), mode(260, 250, 2)]),
        Task("short", [mode(10, 10, 4), mode(15, 15, 2)]),
    ]
    best = best_timetable(tasks, cluster, 1000.0, float("inf"), 10.0)
    assert best is not None
    assert best.score_s == 120
    assert best.starts["short"][0] == 0
    assert best.starts["long"][0] == 10


def test_the_timetable_keeps_the_bound_on_completion_times() -> None:
    cluster = worlds.cluster({"a": 4})
    tasks = [Task("one", [mode(10, 100, 1), mode(30, 50, 2)]), Task("two", [mode(10, 10, 4)])]
    free = best_timetable(tasks, cluster, 1000.0, float("inf"), 10.0)
    bound = best_timetable(tasks, cluster, 1000.0, 80.0, 10.0)
    assert free is not None
    assert bound is not None
    assert free.starts["one"][1].duration_s == 100
    assert bound.starts["one"][1].duration_s == 50
    assert best_timetable(tasks, cluster, 1000.0, 60.0, 10.0) is None


def test_a_solver_that_proves_nothing_says_so() -> None:
    tasks = [
        Task(str(job), [mode(10.0 + job, 10.0 + job, 1 + job % 3) for _ in range(1)]) for job in range(30)
    ]
    with pytest.raises(InvalidValueError, match="limit"):
        best_timetable(tasks, worlds.cluster({"a": 4}), 1000.0, float("inf"), 1e-6)
