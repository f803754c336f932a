"""A region that cools down for a job is entered neither by a start nor by a move."""

from __future__ import annotations

from dataclasses import replace

from scheduler.check import Rule, check_plan
from scheduler.job import Elasticity
from scheduler.plan import Plan
from scheduler.policies import PolicyConfig, decide
from scheduler.snapshot import RunningJob
from tests.worlds import both_ways, cluster, job, runs, snapshot

HORIZON = PolicyConfig("horizon")
PRICES = {"cheap": 0.01, "dear": 1.0}


def running(avoid: frozenset[str]) -> RunningJob:
    """On one GPU of the dear region, with much left to do."""
    waiting = job("r", steps=20_000)
    waiting = replace(waiting, spec=replace(waiting.spec, elasticity=Elasticity.RESIZE))
    placement = decide(snapshot(cluster({"dear": 1}), job("r", stages=(1, 1))), HORIZON).starts[0].placement
    return replace(runs(waiting, placement, steps=20_000), ready_s=-7200.0, avoid_regions=avoid)


def test_a_job_starts_elsewhere_while_a_region_cools_down() -> None:
    world = cluster({"cheap": 8, "dear": 8})
    for avoid, where in (((), "cheap"), (("cheap",), "dear")):
        (start,) = decide(snapshot(world, job(avoid=avoid), prices=PRICES), HORIZON).starts
        assert start.placement.regions == (where,)


def test_a_job_moves_nowhere_that_cools_down() -> None:
    world = cluster({"cheap": 8, "dear": 1}, both_ways(("cheap", "dear", 1e9)))
    free = snapshot(world, prices=PRICES, running=[running(frozenset())])
    (move,) = decide(free, HORIZON).moves
    assert move.placement.regions == ("cheap",)
    cooling = snapshot(world, prices=PRICES, running=[running(frozenset({"cheap"}))])
    assert decide(cooling, HORIZON).moves == ()
    broken = check_plan(cooling, Plan(cooling.version, (move,)))
    assert [each.rule for each in broken] == [Rule.REGION_ALLOWED]
