"""BACE-Pipe without a part does the rest as published, and what stands in the part's place is what it says."""

from scheduler.allocator import Offer, Rate
from scheduler.check import check_plan
from scheduler.plan import Start
from scheduler.policies import PolicyConfig, decide
from scheduler.policies.ablations import evenly
from tests.worlds import both_ways, cluster, job, runs, snapshot

PRICES = {"cheap": 0.1, "large": 0.3, "mid": 0.2}


def chain(policy: str, world, *waiting, prices=PRICES) -> str:
    snap = snapshot(world, *waiting, prices=prices)
    plan = decide(snap, PolicyConfig(policy))
    assert check_plan(snap, plan) == ()
    assert isinstance(plan.decisions[0], Start)
    return plan.decisions[0].placement.describe()


def test_without_priority_jobs_come_by_arrival_but_the_users_priority_still_counts():
    world = cluster({"a": 8})
    long, short = job("long", steps=100, submit_s=1), job("short", steps=1, submit_s=2)
    urgent = job("urgent", steps=200, submit_s=3, priority=90)
    plan = decide(snapshot(world, short, long), PolicyConfig("bace"))
    assert [each.job_id for each in plan.decisions] == ["short", "long"]
    plan = decide(snapshot(world, short, long, urgent), PolicyConfig("bace-no-priority"))
    assert [each.job_id for each in plan.decisions] == ["urgent", "long", "short"]


def test_without_priority_a_job_stands_where_bace_would_put_it():
    world = cluster({"cheap": 4, "large": 6, "mid": 5}, both_ways(("cheap", "large", 4), ("large", "mid", 9)))
    assert chain("bace-no-priority", world, job()) == chain("bace", world, job())


def test_without_the_pathfinder_the_roomiest_regions_are_joined_though_their_link_stalls_the_pipeline():
    links = both_ways(("cheap", "large", 99), ("large", "mid", 2), ("cheap", "mid", 99))
    world = cluster({"cheap": 2, "large": 6, "mid": 5}, links)
    assert chain("bace", world, job()) == "cheap:2>large:6"
    snap = snapshot(world, job(), prices=PRICES)
    (start,) = decide(snap, PolicyConfig("bace-no-path")).starts
    assert set(start.placement.regions) == {"large", "mid"}
    (cut,) = start.placement.cuts
    assert cut.bandwidth_bps == 2  # of the 8 that it needs


def test_without_the_pathfinder_cost_min_still_shares_out_the_stages():
    world = cluster({"large": 6, "mid": 5}, both_ways(("large", "mid", 99)))
    assert chain("bace-no-path", world, job()) == "large:3>mid:5"
    assert chain("cr-ldf", world, job()) == "large:6>mid:2"


def test_without_the_pathfinder_no_region_is_entered_that_is_not_needed():
    world = cluster({"large": 9, "mid": 5}, both_ways(("large", "mid", 99)))
    assert chain("bace-no-path", world, job()) == "large:8"


def test_without_cost_min_stages_are_spread_evenly_and_prices_do_not_choose_among_paths():
    world = cluster({"large": 6, "mid": 5}, both_ways(("large", "mid", 99)))
    assert chain("bace-no-cost", world, job()) == "large:4>mid:4"
    alone = cluster({"a": 8, "b": 8}, both_ways(("a", "b", 99)))
    for dear, cheap in (("a", "b"), ("b", "a")):
        prices = {dear: 0.9, cheap: 0.1}
        assert chain("bace-no-cost", alone, job(), prices=prices) == "a:8"
        assert chain("bace", alone, job(), prices=prices) == f"{cheap}:8"


def test_without_cost_min_a_job_gets_as_many_stages_as_with_it():
    world = cluster({"cheap": 4, "large": 6, "mid": 5}, both_ways(("cheap", "large", 4), ("large", "mid", 9)))
    other = job("r", stages=(3, 3))
    (placed,) = decide(snapshot(world, other), PolicyConfig()).starts
    snap = snapshot(world, job(), running=[runs(other, placed.placement)])
    stages = {
        decide(snap, PolicyConfig(name)).starts[0].placement.stages for name in ("bace", "bace-no-cost")
    }
    assert len(stages) == 1


def test_evenly_gives_one_each_and_no_more_than_there_is():
    offers = [Offer((name, "g"), slots, Rate(False, 0.1)) for name, slots in (("b", 9), ("a", 2), ("c", 9))]
    assert evenly(offers, 3) == ((("b", "g"), 1), (("a", "g"), 1), (("c", "g"), 1))
    assert evenly(offers, 11) == ((("b", "g"), 5), (("a", "g"), 2), (("c", "g"), 4))
    assert evenly(offers, 2) is None
    assert evenly(offers, 21) is None
