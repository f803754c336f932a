"""No plan of any policy gives a tenant more than its quota, and nobody else waits for what it may not have."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from scheduler.check import Rule, check_plan
from scheduler.explain_quotas import explain_within_quotas
from scheduler.job import Elasticity
from scheduler.plan import Hold, Move, Plan, Start
from scheduler.policies import POLICIES, PolicyConfig, asked, decide
from scheduler.policies.quota_reasons import QUOTA_CODES
from scheduler.price import PriceSeries
from scheduler.reasons import ReasonCode
from scheduler.snapshot import Quota, Snapshot
from scheduler.spending import expected_usd
from tests.busy_worlds import NOW_S, busy
from tests.worlds import both_ways, cluster, job, runs, snapshot

TENANTS = ("red", "blue")
MONTH_ENDS_S = NOW_S + 86_400.0


def with_tenants(seed: int) -> Snapshot:
    """A busy cluster whose jobs belong to two tenants with quotas that often bind."""
    dice, world = random.Random(seed), busy(seed)

    def owned(each):
        return replace(each, spec=replace(each.spec, project=dice.choice(TENANTS)))

    def quota() -> Quota:
        gpus = dice.choice([None, 0, 1, 2, 3, 5, 8])
        usd = dice.choice([None, None, 0.0, 0.01, 1.0, 1e6])
        return Quota(gpus, usd, spent_usd=dice.choice([0.0, 0.005]), month_ends_s=MONTH_ENDS_S)

    return replace(
        world,
        waiting=tuple(map(owned, world.waiting)),
        running=tuple(map(owned, world.running)),
        promised=tuple(map(owned, world.promised)),
        quotas={tenant: quota() for tenant in TENANTS if dice.random() < 0.8},
    )


def held_after(snap: Snapshot, plan: Plan, tenant: str) -> int:
    """GPUs of a tenant once the plan has been done, counted anew."""
    moved = {each.job_id: each.placement for each in plan.moves}
    gone = {each.job_id for each in plan.preemptions}
    total = sum(each.placement.gpus for each in snap.promised if each.spec.project == tenant)
    for each in snap.running:
        if each.spec.project == tenant and not each.stopping and each.spec.job_id not in gone:
            total += moved.get(each.spec.job_id, each.allocation.placement).gpus
    by_id = {each.spec.job_id: each.spec for each in snap.waiting}
    return total + sum(each.placement.gpus for each in plan.starts if by_id[each.job_id].project == tenant)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_keeps_every_quota(name: str) -> None:
    codes = set()
    for seed in range(15):
        snap = with_tenants(seed)
        plan = decide(snap, PolicyConfig(name))
        assert check_plan(snap, plan) == (), seed
        held = [each.position for each in plan.decisions if isinstance(each, Hold)]
        assert held == list(range(1, len(held) + 1)), seed
        for tenant, quota in snap.quotas.items():
            before = held_after(snap, Plan(1, ()), tenant)
            if quota.gpus is not None and any(
                each.spec.project == tenant and any(s.job_id == each.spec.job_id for s in plan.starts)
                for each in snap.waiting
            ):
                assert held_after(snap, plan, tenant) <= quota.gpus, seed
            elif quota.gpus is not None:
                assert held_after(snap, plan, tenant) <= max(quota.gpus, before), seed
        codes |= {each.reasons[0].code for each in plan.decisions if isinstance(each, Hold)}
    assert codes >= QUOTA_CODES - {ReasonCode.QUOTA_SPEND}


@pytest.mark.parametrize("name", ["bace", "horizon"])
def test_a_world_without_quotas_is_planned_as_ever(name: str) -> None:
    config = PolicyConfig(name)
    for seed in range(6):
        snap = replace(with_tenants(seed), quotas={})
        assert decide(snap, config) == asked(snap, config)
        wide = replace(snap, quotas={tenant: Quota(10_000, 1e12, 0.0, MONTH_ENDS_S) for tenant in TENANTS})
        assert decide(wide, config) == asked(snap, config)


@pytest.mark.parametrize("name", ["fifo", "bace", "horizon"])
def test_what_a_quota_keeps_from_one_tenant_is_anothers_in_the_same_round(name: str) -> None:
    world = cluster({"a": 4})
    greedy = [red(f"red{n}", stages=(2, 2), priority=90, submit_s=n) for n in range(4)]
    modest = replace(job("blue", stages=(2, 2), priority=10, submit_s=9.0))
    snap = replace(snapshot(world, *greedy, modest), quotas={"red": Quota(gpus=2)})
    plan = decide(snap, PolicyConfig(name))
    assert sorted(start.job_id for start in plan.starts) == ["blue", "red0"]
    waits = {each.job_id: each.reasons[0] for each in plan.decisions if isinstance(each, Hold)}
    assert {reason.code for reason in waits.values()} == {ReasonCode.QUOTA_GPUS}
    assert {(reason.needed, reason.available) for reason in waits.values()} == {(2, 0)}


def red(job_id: str, **more):
    """A job of the tenant with the quota."""
    made = job(job_id, **more)
    return replace(made, spec=replace(made.spec, project="red"))


@pytest.mark.parametrize("name", ["fifo", "bace", "cr-lcf", "horizon"])
def test_a_job_that_may_have_fewer_stages_takes_what_its_quota_leaves(name: str) -> None:
    snap = snapshot(cluster({"a": 8}), red("auto", layers=8))
    free = decide(snap, PolicyConfig(name)).starts[0].placement.stages
    assert free > 3
    [start] = decide(replace(snap, quotas={"red": Quota(gpus=3)}), PolicyConfig(name)).starts
    assert start.placement.stages == 3


def test_a_job_larger_than_its_quota_is_told_so_and_blocks_nobody() -> None:
    snap = snapshot(cluster({"a": 8}), red("big", stages=(6, 6), submit_s=0.0), red("small", stages=(2, 2)))
    plan = decide(replace(snap, quotas={"red": Quota(gpus=4)}), PolicyConfig())
    assert [start.job_id for start in plan.starts] == ["small"]
    [hold] = [each for each in plan.decisions if isinstance(each, Hold)]
    reason = hold.reasons[0]
    assert (reason.code, reason.needed, reason.available) == (ReasonCode.QUOTA_TOO_SMALL, 6, 4)


def test_a_job_that_its_quota_bounds_is_never_refused_for_good() -> None:
    """On one GPU type it needs two stages, on the other, which it would have to take, four."""
    world = cluster({"a": 8, "b": 8}, both_ways(("a", "b", 1e-3)))
    snap = snapshot(world, red("j", stages=(4, None), activation_bits=1e6))
    plan = decide(replace(snap, quotas={"red": Quota(gpus=4)}), PolicyConfig("cr-lcf"))
    assert not any(type(each).__name__ == "Reject" for each in plan.decisions)


def test_money_is_what_is_spent_and_what_running_and_starting_jobs_will_cost_this_month() -> None:
    world = cluster({"a": 8})
    first, second = red("first", stages=(2, 2), steps=1000), red("second", stages=(2, 2), steps=1000)
    snap = snapshot(world, second)
    placement = decide(snapshot(world, first), PolicyConfig()).starts[0].placement
    month_ends_s = 3600.0
    snap = replace(snap, running=(runs(first, placement, steps=1000),))
    each_usd = expected_usd(snap, first.spec, placement, 1000, month_ends_s)
    assert each_usd > 0

    def decided(quota_usd: float, spent_usd: float = 0.0) -> Plan:
        quota = Quota(usd_per_month=quota_usd, spent_usd=spent_usd, month_ends_s=month_ends_s)
        return decide(replace(snap, quotas={"red": quota}), PolicyConfig())

    assert decided(2.01 * each_usd).starts
    assert decided(3.01 * each_usd, spent_usd=each_usd).starts
    for tight in (decided(1.99 * each_usd), decided(2.99 * each_usd, spent_usd=each_usd)):
        [hold] = tight.decisions
        assert isinstance(hold, Hold)
        [reason] = hold.reasons
        assert reason.code is ReasonCode.QUOTA_SPEND
        assert reason.needed == pytest.approx(each_usd)
        assert reason.available == pytest.approx(0.99 * each_usd)
    [nothing_left] = decided(each_usd, spent_usd=each_usd).decisions
    assert isinstance(nothing_left, Hold)
    assert nothing_left.reasons[0].available == 0.0


def test_a_plan_beyond_a_quota_is_found_by_the_check() -> None:
    world = cluster({"a": 8})
    snap = snapshot(world, red("one", stages=(2, 2)), red("two", stages=(2, 2)))
    plan = decide(snap, PolicyConfig())
    assert len(plan.starts) == 2
    [found] = check_plan(replace(snap, quotas={"red": Quota(gpus=3)}), plan)
    assert (found.rule, found.job_id) == (Rule.QUOTA, "one, two")
    assert check_plan(replace(snap, quotas={"red": Quota(gpus=4)}), plan) == ()
    spent = Quota(usd_per_month=1.0, spent_usd=1.0)
    [found] = check_plan(replace(snap, quotas={"red": spent}), plan)
    assert found.rule is Rule.SPENDING


def test_a_tenant_whose_quota_was_lowered_goes_on_but_grows_no_more() -> None:
    world = cluster({"a": 8})
    grown = red("grown", layers=8, steps=100_000)
    grown = replace(grown, spec=replace(grown.spec, elasticity=Elasticity.RESIZE))
    placement = decide(snapshot(world, red("grown", stages=(4, 4))), PolicyConfig()).starts[0].placement
    prices = {"a": PriceSeries.flat(0.1).known(1e6)}  # long after it started: a restart is worth it
    snap = Snapshot(1, 1e6, world, prices, running=(runs(grown, placement, steps=100_000),))
    free = decide(snap, PolicyConfig("horizon"))
    assert [each.placement.stages > 4 for each in free.moves] == [True]
    bound = decide(replace(snap, quotas={"red": Quota(gpus=2)}), PolicyConfig("horizon"))
    assert not [each for each in bound.decisions if isinstance(each, Move) and each.placement.stages > 4]
    assert not any(isinstance(each, Start) for each in bound.decisions)


@pytest.mark.parametrize("name", ["bace", "horizon"])
def test_an_explanation_says_what_the_plan_says(name: str) -> None:
    told = 0
    for seed in range(12):
        snap = with_tenants(seed)
        config = PolicyConfig(name)
        for each in decide(snap, config).decisions:
            if isinstance(each, Hold) and each.reasons[0].code in QUOTA_CODES:
                explained = explain_within_quotas(snap, config, each.job_id)
                assert (explained.position, explained.reasons) == (each.position, each.reasons)
                assert len(explained.would_start) == 1
                told += 1
    assert told > 3
