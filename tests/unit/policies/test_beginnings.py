"""Where the first stage stands: at the job's home, and where its data are or can be brought."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.check import Rule, check_plan
from scheduler.cluster import Cluster, Link
from scheduler.datasets import beginnings, brought_to
from scheduler.job import DataSet, Elasticity, PlacementRule
from scheduler.plan import Hold, Plan, Reject
from scheduler.policies import POLICIES, PolicyConfig, decide
from scheduler.reasons import ReasonCode
from scheduler.snapshot import WaitingJob
from tests.played import coming, play, row_of, scenario
from tests.worlds import both_ways, cluster, job, snapshot

GB = 1e9
CROSSING = ("cr-lcf", "cr-ldf", "bace", "bace-k0", "horizon", "atlas", "bace-elastic", "marginal")


def with_data(waiting: WaitingJob, *sets: DataSet, **more: object) -> WaitingJob:
    return replace(waiting, spec=replace(waiting.spec, data=sets, **more))


def at_home(region: str, **more) -> WaitingJob:
    return job(placement=PlacementRule(home=region), **more)


def world() -> Cluster:
    """A chain of three regions; the middle one is the smallest."""
    return cluster({"a": 4, "b": 2, "c": 6}, both_ways(("a", "b", 1e3), ("b", "c", 1e3)))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("home", ["a", "b", "c"])
def test_every_policy_begins_at_home(policy: str, home: str) -> None:
    shown = snapshot(world(), at_home(home))
    (start,) = decide(shown, PolicyConfig(policy)).starts
    assert start.placement.regions[0] == home
    assert check_plan(shown, decide(shown, PolicyConfig(policy))) == ()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_home_holds_no_part_of_waits_for_it(policy: str) -> None:
    full = cluster({"a": 0, "b": 6, "c": 6}, both_ways(("a", "b", 1e3), ("b", "c", 1e3)))
    (decision,) = decide(snapshot(full, at_home("a")), PolicyConfig(policy)).decisions
    assert isinstance(decision, Hold | Reject)
    assert decision.reasons


@pytest.mark.parametrize("policy", CROSSING)
def test_from_home_it_goes_on_into_other_regions(policy: str) -> None:
    shown = snapshot(world(), at_home("c", stages=(8, 8), named=8))
    (start,) = decide(shown, PolicyConfig(policy)).starts
    assert start.placement.regions[0] == "c"
    assert start.placement.stages == 8


@pytest.mark.parametrize("policy", POLICIES)
def test_a_home_that_is_not_there_is_told(policy: str) -> None:
    (decision,) = decide(snapshot(world(), at_home("z")), PolicyConfig(policy)).decisions
    assert isinstance(decision, Reject)
    assert decision.reasons[0].code is ReasonCode.NEVER_FITS
    assert "z" in decision.reasons[0].detail


@pytest.mark.parametrize("policy", POLICIES)
def test_where_no_link_brings_the_data_no_chain_begins(policy: str) -> None:
    one_way = cluster({"a": 2, "b": 8, "c": 8}, (Link("a", "b", 1e3, 0.01),))
    shown = snapshot(one_way, with_data(job(stages=(3, 8)), DataSet(GB, ("a",))))
    (start,) = decide(shown, PolicyConfig(policy)).starts
    assert start.placement.regions[0] == "b"
    (none,) = decide(
        snapshot(cluster({"a": 0, "c": 8}), with_data(job(), DataSet(GB, ("b",)))), PolicyConfig(policy)
    ).decisions
    assert isinstance(none, Reject)
    assert none.reasons[0].code is ReasonCode.DATA_UNREACHABLE


def test_what_is_brought_goes_over_the_link_of_least_egress() -> None:
    links = (Link("a", "c", 1e3, 0.01, 0.09), Link("b", "c", 1e3, 0.01, 0.02), Link("c", "a", 1e3, 0.01, 0.5))
    there = cluster({"a": 1, "b": 1, "c": 1}, links)
    spec = with_data(job(), DataSet(100 * GB, ("a", "b")), DataSet(10 * GB, ("c",)), DataSet(GB)).spec
    (only,) = brought_to(spec, there.links, "c") or ()
    assert (only.src, only.sent_bytes, only.usd_per_gb) == ("b", 100 * GB, 0.02)
    assert beginnings(spec, there.links, {"a", "b", "c"}) == {"a": 10 * 0.5, "c": 100 * 0.02}
    assert brought_to(spec, there.links, "b") is None, "nothing leads from c to b"


def twins(usd_per_gb: float) -> Cluster:
    return cluster({"a": 4, "b": 4}, both_ways(("a", "b", 1e6), usd_per_gb=usd_per_gb))


def test_horizon_stands_where_the_data_are() -> None:
    for place in "ab":
        waiting = with_data(job(stages=(4, 4), steps=1000), DataSet(100 * GB, (place,)))
        (start,) = decide(snapshot(twins(0.1), waiting), PolicyConfig("horizon")).starts
        assert start.placement.regions == (place,)


def test_horizon_turns_a_chain_around_so_that_it_begins_where_the_data_are() -> None:
    for place in "ab":
        waiting = with_data(job(stages=(8, 8), steps=1000), DataSet(100 * GB, (place,)))
        (start,) = decide(snapshot(twins(0.001), waiting), PolicyConfig("horizon")).starts
        assert start.placement.regions[0] == place
        assert len(start.placement.regions) == 2


def test_what_has_been_brought_costs_nothing_when_the_job_comes_back() -> None:
    prices = {"a": 0.1, "b": 0.0999}
    waiting = with_data(job(stages=(4, 4), steps=1000), DataSet(100 * GB, ("a",)))
    (first,) = decide(snapshot(twins(0.1), waiting, prices=prices), PolicyConfig("horizon")).starts
    assert first.placement.regions == ("a",)
    back = replace(waiting, brought=frozenset("b"), generation=2)
    (again,) = decide(snapshot(twins(0.1), back, prices=prices), PolicyConfig("horizon")).starts
    assert again.placement.regions == ("b",)


def test_the_check_finds_a_chain_that_begins_elsewhere() -> None:
    shown = snapshot(world(), job())
    plan = decide(shown, PolicyConfig("fifo"))
    assert plan.starts[0].placement.regions == ("c",)

    def broken(waiting: WaitingJob) -> set[Rule]:
        return {each.rule for each in check_plan(snapshot(world(), waiting), Plan(1, plan.decisions))}

    assert broken(at_home("a")) == {Rule.BEGINNING}
    assert broken(at_home("c")) == set()
    assert broken(with_data(job(), DataSet(1.0, ("a",)))) == {Rule.BEGINNING}
    assert broken(with_data(job(), DataSet(1.0, ("b",)))) == set()
    assert broken(replace(with_data(job(), DataSet(1.0, ("a",))), brought=frozenset("c"))) == set()


@pytest.mark.parametrize("policy", ["lcf", "bace", "horizon"])
def test_a_replay_bills_what_was_brought_once_for_each_region(policy: str) -> None:
    cheap_b = {"a": 0.3, "b": 0.1}
    waiting = with_data(
        job(stages=(4, 4), steps=200, placement=PlacementRule(home="b")), DataSet(100 * GB, ("a",))
    )
    result = play(
        scenario(twins(0.02), cheap_b),
        [coming(waiting, 0.0, elasticity=Elasticity.RESIZE)],
        policy,
    )
    (row,) = [row for row in result.links if row.use == "data"]
    assert (row.src, row.dst, row.bytes, row.reserved_bps) == ("a", "b", 100 * GB, 0.0)
    assert row_of(result, "j").egress_usd == pytest.approx(100 * 0.02)
