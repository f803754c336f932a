"""Deadlines and budgets are kept where they can be, and told with numbers where they cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.check import check_plan
from scheduler.cluster import Cluster
from scheduler.job import Elasticity
from scheduler.plan import Hold, Preempt, Reject, Start
from scheduler.policies import MAIN, STUDIES, PolicyConfig, decide
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.reasons import ReasonCode
from scheduler.snapshot import RunningJob, Snapshot, WaitingJob
from tests.played import coming, play, row_of, scenario
from tests.worlds import both_ways, cluster, job, runs, snapshot

HORIZON = PolicyConfig("horizon")
HOUR = 3600.0
# A job of eight layers, 8 s for a micro-batch, four of them: 32 s an iteration on one stage, 11 s on eight.
WIDE_S, NARROW_S = 11.0, 32.0


def bound(
    waiting: WaitingJob, *, deadline_s: float | None = None, budget_usd: float | None = None
) -> WaitingJob:
    return replace(waiting, spec=replace(waiting.spec, deadline_s=deadline_s, budget_usd=budget_usd))


def elastic(waiting: WaitingJob) -> WaitingJob:
    return replace(waiting, spec=replace(waiting.spec, elasticity=Elasticity.RESIZE))


def decided(shown: Snapshot, job_id: str = "j"):
    plan = decide(shown, HORIZON)
    assert check_plan(shown, plan) == ()
    found = [each for each in plan.decisions if each.job_id == job_id]
    return found[0] if found else None


def crowd(count: int) -> list[WaitingJob]:
    """Jobs that make GPU time worth something: beside them a job alone would take few stages."""
    return [job(f"other{number}", layers=1, seconds=8.0, steps=5000) for number in range(count)]


def test_a_job_with_a_deadline_takes_as_many_stages_as_that_takes() -> None:
    world = cluster({"a": 16})
    steps = 1000
    free = decided(snapshot(world, job(steps=steps), *crowd(30)))
    assert isinstance(free, Start)
    assert free.placement.stages < 8
    tight = bound(job(steps=steps), deadline_s=steps * WIDE_S * 1.02)
    start = decided(snapshot(world, tight, *crowd(30)))
    assert isinstance(start, Start)
    assert start.placement.stages == 8
    assert start.predicted_iteration_s * steps <= tight.spec.deadline_s


def test_a_job_with_a_budget_takes_no_more_stages_than_that_pays_for() -> None:
    """Alone on an idle cluster it would take all eight; they draw more for the same work."""
    world = cluster({"a": 8})
    waiting = job(steps=1000, micro_batches=2)
    free = decided(snapshot(world, waiting))
    assert isinstance(free, Start)
    assert free.placement.stages == 8
    # One stage draws 1 kW for 16 s a step: 0.444 USD. Eight draw 2.5 kW or so for 9 s.
    start = decided(snapshot(world, bound(waiting, budget_usd=0.46)))
    assert isinstance(start, Start)
    assert start.placement.stages == 1


def test_a_budget_keeps_a_job_where_electricity_is_cheap() -> None:
    world = cluster({"a": 8, "b": 2})
    waiting = job(steps=1000)
    shown = snapshot(world, bound(waiting, budget_usd=0.5), prices={"a": 1.0, "b": 0.05})
    start = decided(shown)
    assert isinstance(start, Start)
    assert start.placement.regions == ("b",)


def test_what_is_free_now_and_too_slow_is_not_taken_and_the_job_is_told_why() -> None:
    world = cluster({"a": 8})
    held = [job(f"r{number}", layers=1, seconds=8.0, steps=100) for number in range(6)]
    first = decide(snapshot(world, *held), PolicyConfig("fifo"))
    running = [runs(each, start.placement, steps=10) for each, start in zip(held, first.starts, strict=True)]
    waiting = bound(job(steps=1000), deadline_s=1000 * WIDE_S * 1.3)
    decision = decided(snapshot(world, waiting, running=running))
    assert isinstance(decision, Hold)
    (reason,) = decision.reasons
    assert reason.code is ReasonCode.DEADLINE_AT_RISK
    assert reason.available == pytest.approx(1000 * WIDE_S * 1.3)
    assert reason.needed == pytest.approx(1000 * 20.0, rel=0.01), "two stages: 5 × 4 s an iteration"


def test_what_is_free_now_and_too_dear_is_not_taken_and_the_job_is_told_why() -> None:
    world = cluster({"a": 8, "b": 8})
    held = [job(f"r{number}", layers=1, seconds=8.0, steps=100) for number in range(8)]
    prices = {"a": 1.0, "b": 0.05}
    first = decide(snapshot(cluster({"b": 8}), *held), PolicyConfig("fifo"))
    running = [runs(each, start.placement, steps=10) for each, start in zip(held, first.starts, strict=True)]
    decision = decided(
        snapshot(world, bound(job(steps=1000), budget_usd=1.0), prices=prices, running=running)
    )
    assert isinstance(decision, Hold)
    (reason,) = decision.reasons
    assert reason.code is ReasonCode.BUDGET_AT_RISK
    assert reason.available == 1.0
    assert reason.needed == pytest.approx(1000 * NARROW_S / HOUR * 1.0, rel=0.01)


def test_a_deadline_that_cannot_be_met_even_alone_is_refused_with_the_numbers() -> None:
    decision = decided(snapshot(cluster({"a": 8}), bound(job(steps=1000), deadline_s=5 * HOUR / 2)))
    assert isinstance(decision, Reject)
    (reason,) = decision.reasons
    assert reason.code is ReasonCode.DEADLINE_UNMEETABLE
    assert reason.needed == pytest.approx(1000 * WIDE_S, rel=0.01)
    assert reason.available == 5 * HOUR / 2
    assert "1970-01-01T02:30:00Z" in reason.detail


def test_a_budget_that_is_too_small_even_alone_is_refused_with_the_numbers() -> None:
    decision = decided(snapshot(cluster({"a": 8}), bound(job(steps=1000), budget_usd=0.5)))
    assert isinstance(decision, Reject)
    (reason,) = decision.reasons
    assert reason.code is ReasonCode.BUDGET_TOO_SMALL
    assert reason.needed == pytest.approx(1000 * NARROW_S / HOUR * 0.1, rel=0.01)
    assert reason.available == 0.5


def test_a_deadline_and_a_budget_that_cannot_be_kept_together_are_refused() -> None:
    waiting = job(steps=1000, micro_batches=2)
    apart = [bound(waiting, deadline_s=2.6 * HOUR), bound(waiting, budget_usd=0.46)]
    for each in apart:
        assert isinstance(decided(snapshot(cluster({"a": 8}), each)), Start)
    decision = decided(snapshot(cluster({"a": 8}), bound(waiting, deadline_s=2.6 * HOUR, budget_usd=0.46)))
    assert isinstance(decision, Reject)
    assert "not within its budget" in decision.reasons[0].detail


def test_a_region_that_cools_down_refuses_nobody() -> None:
    waiting = bound(job(steps=1000, avoid=("a",)), deadline_s=4 * HOUR)
    decision = decided(snapshot(cluster({"a": 8, "b": 1}), waiting))
    assert isinstance(decision, Hold)
    assert decision.reasons[0].code is ReasonCode.DEADLINE_AT_RISK


def test_a_job_that_has_run_goes_on_though_its_deadline_is_missed_and_is_told_so() -> None:
    late = bound(job(steps=1000, generation=2), deadline_s=HOUR)
    start = decided(snapshot(cluster({"a": 8}), late))
    assert isinstance(start, Start)
    assert "deadline cannot be kept any more" in start.why
    other = job("other", stages=(8, 8), steps=1)
    full = decide(snapshot(cluster({"a": 8}), other), PolicyConfig("fifo")).starts[0]
    decision = decided(snapshot(cluster({"a": 8}), late, running=[runs(other, full.placement, steps=1000)]))
    assert isinstance(decision, Hold)
    assert ReasonCode.DEADLINE_MISSED in {reason.code for reason in decision.reasons}


def test_a_job_that_has_run_is_not_started_again_with_less_than_it_needs_to_end() -> None:
    broke = replace(bound(job(steps=1000, generation=2), budget_usd=1.0), spent_usd=0.8)
    decision = decided(snapshot(cluster({"a": 8}), broke))
    assert isinstance(decision, Hold)
    (reason,) = decision.reasons
    assert reason.code is ReasonCode.BUDGET_EXHAUSTED
    assert reason.available == pytest.approx(0.2)
    assert isinstance(decided(snapshot(cluster({"a": 8}), replace(broke, spent_usd=0.05))), Start)


def running(waiting: WaitingJob, gpus: int, steps: int, **more) -> RunningJob:
    """The job on so many GPUs of region a."""
    placed = decide(snapshot(cluster({"a": gpus}), replace(waiting, generation=1)), PolicyConfig("fifo"))
    return replace(runs(waiting, placed.starts[0].placement, steps=steps), ready_s=-2 * HOUR, **more)


def test_a_running_job_whose_budget_is_used_up_is_stopped_and_its_gpus_are_given_on() -> None:
    spender = elastic(bound(job("s", stages=(4, 8), steps=4000), budget_usd=2.0))
    held = running(spender, 8, 2000, spent_usd=1.5, generation_usd=0.6)
    shown = snapshot(cluster({"a": 8}), job(stages=(8, 8)), running=[held])
    stopped = decided(shown, "s")
    assert isinstance(stopped, Preempt)
    assert "$2.00 is used up: it has cost $2.10" in stopped.why
    assert isinstance(decided(shown), Start)
    rich = snapshot(cluster({"a": 8}), running=[replace(held, generation_usd=0.4)])
    assert decided(rich, "s") is None
    rigid = replace(held, spec=replace(held.spec, elasticity=Elasticity.NONE))
    assert decided(snapshot(cluster({"a": 8}), running=[rigid]), "s") is None


def test_a_running_job_grows_to_keep_its_deadline_where_that_would_not_pay_otherwise() -> None:
    steps, world = 80, cluster({"a": 12})
    slow = elastic(job("s", steps=steps, micro_batches=2))  # 10 s an iteration on four stages, 9 s on eight
    calm = snapshot(world, running=[running(slow, 4, steps)])
    assert decided(calm, "s") is None
    shown = snapshot(world, running=[running(bound(slow, deadline_s=790.0), 4, steps)])
    move = decided(shown, "s")
    assert move is not None
    assert move.placement.stages == 8


def test_the_job_with_the_least_time_to_spare_comes_first() -> None:
    world = cluster({"a": 8})
    brief = job("brief", stages=(8, 8), steps=100)
    long = bound(job("long", stages=(8, 8), steps=1000), deadline_s=1000 * WIDE_S + 600)
    assert isinstance(decided(snapshot(world, brief, bound(long, deadline_s=1e6)), "brief"), Start)
    assert isinstance(decided(snapshot(world, brief, long), "long"), Start)


def test_a_job_is_not_pushed_aside_where_that_makes_it_miss_its_deadline() -> None:
    world = cluster({"a": 8})
    victim = elastic(job("v", stages=(8, 8), steps=4000))
    newcomer = job(stages=(8, 8), steps=40)
    assert HorizonConfig().ejects
    loose = snapshot(world, newcomer, running=[running(victim, 8, 4000)])
    assert isinstance(decided(loose), Start), "it is so much shorter"
    tight = bound(victim, deadline_s=4000 * WIDE_S + 60)
    assert isinstance(decided(snapshot(world, newcomer, running=[running(tight, 8, 4000)])), Hold)


def line() -> Cluster:
    return cluster({"a": 4, "b": 4}, both_ways(("a", "b", 1e9), usd_per_gb=1.0))


def test_egress_counts_against_the_budget() -> None:
    waiting = job(stages=(8, 8), steps=1000, activation_bits=8e6)  # 4 MB a step and direction: 8 GB, 8 USD
    assert isinstance(decided(snapshot(line(), bound(waiting, budget_usd=9.2))), Start)
    decision = decided(snapshot(line(), bound(waiting, budget_usd=8.8)))
    assert isinstance(decision, Reject)
    assert decision.reasons[0].code is ReasonCode.BUDGET_TOO_SMALL


@pytest.mark.parametrize("policy", [name for name in (*MAIN, *STUDIES) if name != "horizon"])
def test_the_other_policies_plan_by_none_of_it(policy: str) -> None:
    free = snapshot(cluster({"a": 8}), elastic(job(steps=1000)))
    hopeless = elastic(bound(job(steps=1000), deadline_s=1.0, budget_usd=1e-6))
    bare = [replace(each, why="") for each in decide(free, PolicyConfig(policy)).starts]
    assert [
        replace(each, why="")
        for each in decide(snapshot(cluster({"a": 8}), hopeless), PolicyConfig(policy)).starts
    ] == bare


def test_a_replay_stops_a_job_that_runs_longer_than_its_budget_and_fails_it_in_the_end() -> None:
    longer = bound(job(stages=(4, 8), steps=1000), budget_usd=2.0)
    spender = coming(longer, 0.0, elasticity=Elasticity.RESIZE, actual_steps=20_000, budget_usd=2.0)
    ticks = [
        coming(job(f"t{number:02d}", layers=1, seconds=1.0, steps=10), number * HOUR) for number in range(40)
    ]
    result = play(scenario(cluster({"a": 8})), [spender, *ticks])
    row = row_of(result, "j")
    assert row.state == "failed"
    assert row.preemptions == 1
    assert 2.0 <= row.electricity_usd < 2.0 + 2 * 0.8, (
        "at most what it draws until the next decision, and for its stop"
    )
    (told,) = [each for each in result.rejections if each.job_id == "j"]
    assert told.reasons[0].code is ReasonCode.BUDGET_EXHAUSTED


def test_a_replay_refuses_a_job_whose_deadline_passes_while_others_have_the_cluster() -> None:
    first = coming(job("first", stages=(8, 8), steps=1000), 0.0)
    second = coming(job("second", stages=(8, 8), steps=1000), 60.0, deadline_s=1000 * WIDE_S * 1.5)
    result = play(scenario(cluster({"a": 8})), [first, second])
    assert row_of(result, "first").state == "succeeded"
    assert row_of(result, "second").state == "rejected"
