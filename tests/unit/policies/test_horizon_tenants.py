"""Tenants get their shares of the GPUs, and what others leave of theirs."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from scheduler.check import check_plan
from scheduler.job import Elasticity
from scheduler.plan import Hold, Preempt, Start
from scheduler.policies import PolicyConfig, decide
from scheduler.policies.horizon.tenants import fair_shares
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.records import ReplayResult
from scheduler.snapshot import RunningJob, Snapshot, WaitingJob
from tests.played import coming, play, scenario
from tests.worlds import cluster, job, runs, snapshot

HORIZON = PolicyConfig("horizon")
MAIN_WAY = PolicyConfig("horizon", variant="no-rollouts")
HOUR = 3600.0
SHARES = {"large": 3.0, "small": 1.0}


def of(project: str, waiting: WaitingJob, **more: object) -> WaitingJob:
    return replace(waiting, spec=replace(waiting.spec, project=project, **more))


def shared(shown: Snapshot, shares: Mapping[str, float] = SHARES) -> Snapshot:
    return replace(shown, shares=shares)


def on(project: str, job_id: str, gpus: int, steps: int, **more: object) -> RunningJob:
    """A job of a tenant on so many GPUs of region a, for two hours already."""
    rigid = of(project, job(job_id, stages=(gpus, gpus), steps=steps), **more)
    placement = decide(snapshot(cluster({"a": gpus}), rigid), PolicyConfig("fifo")).starts[0].placement
    return replace(runs(rigid, placement, steps=steps), ready_s=-2 * HOUR)


@pytest.mark.parametrize(
    ("needs", "due"),
    [
        ({"large": 99.0, "small": 99.0}, {"large": 12.0, "small": 4.0}),
        ({"large": 2.0, "small": 99.0}, {"large": 2.0, "small": 14.0}),
        ({"large": 99.0}, {"large": 16.0}),
        ({"large": 99.0, "small": 99.0, "third": 99.0}, {"large": 9.6, "small": 3.2, "third": 3.2}),
        ({"large": 1.0, "small": 1.0}, {"large": 1.0, "small": 1.0}),
        ({"large": 0.0, "small": 99.0}, {"large": 0.0, "small": 16.0}),
    ],
)
def test_what_a_tenant_does_not_need_is_the_others(needs: dict[str, float], due: dict[str, float]) -> None:
    assert fair_shares(needs, SHARES, 16.0) == pytest.approx(due)


def test_of_two_jobs_that_want_the_last_gpus_that_of_the_tenant_below_its_share_gets_them() -> None:
    world = cluster({"a": 16})
    running = [on("small", "s", 8, 500)]
    longer = of("large", job("l", stages=(8, 8), steps=400))
    shorter = of("small", job("s2", stages=(8, 8), steps=50))
    shown = shared(snapshot(world, longer, shorter, running=running))
    plan = decide(shown, HORIZON)
    assert check_plan(shown, plan) == ()
    assert [start.job_id for start in plan.starts] == ["l"]
    unshared = decide(replace(shown, shares={}), HORIZON)
    assert [start.job_id for start in unshared.starts] == ["s2"], "the shorter comes first"


def test_a_tenant_may_take_what_nobody_else_wants() -> None:
    world = cluster({"a": 16})
    jobs = [of("small", job(f"s{number}", stages=(4, 4), steps=100)) for number in range(4)]
    plan = decide(shared(snapshot(world, *jobs)), HORIZON)
    assert len(plan.starts) == 4


def test_priority_comes_before_shares() -> None:
    world = cluster({"a": 16})
    running = [on("small", "s", 8, 500)]
    urgent = of("small", job("urgent", stages=(8, 8), steps=50, priority=90))
    usual = of("large", job("usual", stages=(8, 8), steps=50))
    plan = decide(shared(snapshot(world, urgent, usual, running=running)), HORIZON)
    assert [start.job_id for start in plan.starts] == ["urgent"]


def test_nobody_below_its_share_is_pushed_aside_for_one_above() -> None:
    world = cluster({"a": 16})
    elastic = {"elasticity": Elasticity.RESTART}
    brief = {name: of(name, job("brief", stages=(8, 8), steps=40)) for name in SHARES}
    small = [on("small", "s1", 4, 4000), on("small", "s2", 4, 4000)]
    large = on("large", "l", 8, 4000, **elastic)

    def answer(who: str, running: list[RunningJob]) -> object:
        plan = decide(shared(snapshot(world, brief[who], running=running)), HORIZON)
        return next(each for each in plan.decisions if each.job_id == "brief")

    assert isinstance(answer("small", [*small, large]), Hold)
    unshared = decide(snapshot(world, brief["small"], running=[*small, large]), HORIZON)
    assert any(isinstance(each, Preempt) for each in unshared.decisions), "it is so much shorter"
    elastic_small = on("small", "s1", 8, 4000, **elastic)
    rigid_large = on("large", "l", 8, 4000)
    assert isinstance(answer("large", [elastic_small, rigid_large]), Start)


def stream(
    project: str, every_s: float, hours: float, elasticity: Elasticity, stages: tuple[int, int], seed: int
) -> Iterator[ReplayJob]:
    dice = random.Random(f"{project}/{seed}")
    for number in range(round(hours * HOUR / every_s)):
        steps = round(100 * dice.uniform(0.5, 1.5))
        waiting = job(f"{project}{number:03d}", layers=stages[1], seconds=8.0, stages=stages, steps=steps)
        yield coming(waiting, number * every_s, elasticity=elasticity, project=project)


def held(result: ReplayResult, from_s: float, to_s: float) -> dict[str, float]:
    """GPU-seconds of each tenant within a span of time."""
    tenants = {row.job_id: row.tenant for row in result.jobs}
    total: dict[str, float] = defaultdict(float)
    for row in result.allocations:
        total[tenants[row.job_id]] += row.gpus * max(0.0, min(to_s, row.end_s) - max(from_s, row.start_s))
    return total


@pytest.mark.parametrize("elasticity", [Elasticity.NONE, Elasticity.RESIZE])
@pytest.mark.parametrize("stages", [(1, 1), (2, 4)])
def test_two_tenants_with_shares_of_three_to_one_hold_gpus_three_to_one_under_overload(
    elasticity: Elasticity,
    stages: tuple[int, int],
) -> None:
    # Each of them alone would fill the sixteen GPUs.
    every_s = 150.0 if stages == (1, 1) else 200.0
    jobs = [each for name in SHARES for each in stream(name, every_s, 6, elasticity, stages, seed=0)]
    result = play(scenario(cluster({"a": 16}), shares=SHARES), jobs, MAIN_WAY)
    gpus = held(result, HOUR, 6 * HOUR)
    assert 2.4 <= gpus["large"] / gpus["small"] <= 3.6


def test_without_shares_they_hold_as_much_as_they_ask_for() -> None:
    jobs = [each for name in SHARES for each in stream(name, 150.0, 6, Elasticity.NONE, (1, 1), seed=0)]
    gpus = held(play(scenario(cluster({"a": 16})), jobs, MAIN_WAY), HOUR, 6 * HOUR)
    assert 0.8 <= gpus["large"] / gpus["small"] <= 1.25


def test_a_tenant_that_comes_late_gets_its_share_as_jobs_of_the_other_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = list(stream("small", 150.0, 6, Elasticity.NONE, (1, 1), seed=1))
    late = [
        replace(each, submit_s=each.submit_s + 2 * HOUR)
        for each in stream("large", 150.0, 4, Elasticity.NONE, (1, 1), seed=1)
    ]
    late = [replace(each, spec=replace(each.spec, submit_s=each.submit_s)) for each in late]
    result = play(scenario(cluster({"a": 16}), shares=SHARES), [*jobs, *late], MAIN_WAY)
    assert held(result, HOUR, 2 * HOUR)["small"] > 0.95 * 16 * HOUR, "nobody else wants them"
    gpus = held(result, 3.5 * HOUR, 6 * HOUR)
    assert 2.4 <= gpus["large"] / gpus["small"] <= 3.6
