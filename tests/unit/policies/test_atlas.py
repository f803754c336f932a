"""Atlas's list of data centres, and how far down it is worth going."""

from scheduler.check import check_plan
from scheduler.job import Schedule
from scheduler.plan import Hold
from scheduler.policies import PolicyConfig, decide
from tests.worlds import both_ways, cluster, job, snapshot

ATLAS = PolicyConfig("atlas")


def chain(world, waiting) -> str:
    snap = snapshot(world, waiting)
    plan = decide(snap, ATLAS)
    assert check_plan(snap, plan) == ()
    (start,) = plan.starts
    return start.placement.describe()


def test_regions_are_filled_by_free_gpus_whatever_they_cost():
    world = cluster({"a": 2, "b": 5, "c": 3}, both_ways(("a", "b", 99), ("b", "c", 99), ("a", "c", 99)))
    assert chain(world, job()) == "b:5>c:3"


def test_a_further_region_is_entered_only_where_that_is_faster():
    # Eight stages take a second each, and a micro-batch two over the slow link; four take two as well.
    slow, wide = (cluster({"a": 6, "b": 6}, both_ways(("a", "b", bits))) for bits in (4, 99))
    waiting = job(micro_batches=32, schedule=Schedule.SLACK_1F1B)
    assert chain(slow, waiting) == "a:4"
    assert chain(wide, waiting) == "a:6>b:2"


def test_a_job_that_needs_a_second_region_goes_there_however_slow_the_link():
    world = cluster({"a": 6, "b": 6}, both_ways(("a", "b", 4)))
    assert chain(world, job(stages=(8, 8))) == "a:6>b:2"


def test_a_region_that_nothing_joins_is_left_out_and_does_not_end_the_list():
    world = cluster({"alone": 3, "b": 2, "c": 2}, both_ways(("b", "c", 99)))
    assert chain(world, job(stages=(4, 4))) == "b:2>c:2"


def test_jobs_come_by_arrival():
    plan = decide(
        snapshot(cluster({"a": 8}), job("late", steps=1, submit_s=2), job("early", submit_s=1)), ATLAS
    )
    assert [each.job_id for each in plan.decisions] == ["early", "late"]
    assert isinstance(plan.decisions[1], Hold)
