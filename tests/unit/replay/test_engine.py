"""The replay: jobs run their actual steps at the timeline's rate, and policies see what is known at the time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from scheduler.check import check_plan
from scheduler.evaluate import evaluate
from scheduler.placement import Segment
from scheduler.plan import Hold, Plan
from scheduler.policies import PolicyConfig, decide
from scheduler.reasons import Reason, ReasonCode
from scheduler.replay.engine import replay
from scheduler.replay.errors import PricesEndError, ReplayError
from scheduler.replay.workload import jobs_of
from scheduler.snapshot import Snapshot
from scheduler.spec.scenario import Scenario
from tests.replay_worlds import answering, job, run, watched

Make = Callable[..., Scenario]


@pytest.fixture
def snapshots(monkeypatch: pytest.MonkeyPatch) -> list[Snapshot]:
    """Every snapshot that a policy is shown."""
    return watched(monkeypatch, "bace", "lcf")


def test_a_lone_job_runs_its_actual_steps_at_the_rate_of_its_placement_and_is_billed(
    make_scenario: Make,
) -> None:
    scenario = make_scenario(job("a", steps=50, stages=4, actual_steps=70))
    result = run(scenario, "lcf")
    (row,), (held,) = result.jobs, result.allocations
    spec = jobs_of(scenario)[0].spec
    alone = evaluate(spec, scenario.cluster, (Segment("cheap", "G", 4, 1),), ())
    assert (held.region, held.stages, held.gpus, held.steps) == ("cheap", 4, 4, 70)
    assert held.iteration_s == alone.iteration_s
    assert row.finish_s == pytest.approx(70 * alone.iteration_s, rel=1e-12)
    busy = sum(alone.busy_fraction) / 4
    assert held.power_w == pytest.approx(100 + 300 * busy, rel=1e-12)
    kilowatts = 4 * held.power_w * 1.2 / 1000
    hours = row.finish_s / 3600  # type: ignore[operator]
    assert hours < 1
    assert row.energy_kwh == pytest.approx(kilowatts * hours, rel=1e-12)
    assert row.electricity_usd == pytest.approx(kilowatts * hours * 0.1, rel=1e-12)
    assert (row.egress_usd, row.rent_usd, row.chain, row.state) == (0.0, 0.0, "cheap:4", "succeeded")


def test_electricity_follows_the_hours_and_may_be_earned(make_scenario: Make) -> None:
    scenario = make_scenario(job("a", steps=2000, stages=4))
    (row,) = run(scenario, "lcf").jobs
    (held,) = run(scenario, "lcf").allocations
    assert row.finish_s is not None
    assert row.finish_s > 3 * 3600
    kilowatts = 4 * held.power_w * 1.2 / 1000
    prices = [0.1, -0.05, 0.2] * 8
    whole = int(row.finish_s // 3600)
    expected = sum(prices[:whole]) + prices[whole] * (row.finish_s / 3600 - whole)
    assert row.electricity_usd == pytest.approx(kilowatts * expected, rel=1e-12)


def test_a_job_over_two_regions_pays_egress_both_ways_and_rent_where_it_is_due(make_scenario: Make) -> None:
    scenario = make_scenario(job("a", steps=100, stages=12))
    result = run(scenario)
    (row,) = result.jobs
    assert {held.region for held in result.allocations} == {"dear", "cheap"}
    activation = 2048 * 4096 * 2  # sequence × hidden × bf16
    assert {(link.src, link.dst, link.bytes) for link in result.links} == {
        ("dear", "cheap", activation * 16.0 * 100),
        ("cheap", "dear", activation * 16.0 * 100),
    }
    assert row.egress_usd == pytest.approx(activation * 16 * 100 / 1e9 * (0.02 + 0.05), rel=1e-12)
    assert row.rent_usd == pytest.approx(8 * row.finish_s / 3600 * 2, rel=1e-12)  # type: ignore[operator]
    assert len({(held.start_s, held.end_s) for held in [*result.allocations, *result.links]}) == 1


def test_all_arrivals_of_one_instant_are_decided_together(
    make_scenario: Make, snapshots: list[Snapshot]
) -> None:
    run(make_scenario(job("a", "60s") + job("b", "60s") + job("c", "61s")))
    assert len(snapshots[0].waiting) == 2
    assert [waiting.spec.job_id for waiting in snapshots[0].waiting] == ["a", "b"]
    assert all(before.now_s < after.now_s for before, after in pairwise(snapshots))


def test_a_policy_sees_declared_steps_only(make_scenario: Make, snapshots: list[Snapshot]) -> None:
    jobs = job("long", steps=10, stages=4, actual_steps=500) + job("late", "30m", steps=7)
    result = run(make_scenario(jobs), "lcf")
    assert result.jobs[0].steps == 500
    assert snapshots[0].waiting[0].remaining_steps == 10
    seen = [running.remaining_steps for snapshot in snapshots for running in snapshot.running]
    assert seen[0] == 1  # 30 minutes are more than the 10 declared steps: at least one is always left
    for snapshot in snapshots:
        for each in (*snapshot.waiting, *snapshot.running):
            assert each.spec.training.steps in (10, 7)


def test_what_is_left_falls_with_the_iterations_done(make_scenario: Make, snapshots: list[Snapshot]) -> None:
    scenario = make_scenario(job("a", steps=1000, stages=4) + job("b", "600s"))
    result = run(scenario, "lcf")
    iteration_s = next(row.iteration_s for row in result.allocations if row.job_id == "a")
    assert snapshots[1].running[0].remaining_steps == 1000 - int(600 / iteration_s)


@pytest.mark.parametrize(("known", "expected"), [("real-time", 0.2), ("day-ahead", 0.1)])
def test_prices_are_seen_from_when_they_are_known(
    make_scenario: Make, snapshots: list[Snapshot], known: str, expected: float
) -> None:
    run(make_scenario(job("a", "10s"), known=known))
    price = snapshots[0].electricity["cheap"]
    # the hour of the start costs 0.1; in real time only the 0.2 of the hour before is known by then
    assert price.at(snapshots[0].now_s) == expected


def test_day_ahead_prices_of_tomorrow_are_not_seen_before_noon(
    make_scenario: Make, snapshots: list[Snapshot]
) -> None:
    prices = [100.0] * 48 + [900.0] * 48
    run(make_scenario(job("a", "11h", steps=1) + job("b", "12h", steps=1), prices))
    tomorrow_s = snapshots[0].now_s + 20 * 3600
    assert [snapshot.electricity["cheap"].at(tomorrow_s) for snapshot in snapshots] == [0.1, 0.9]


def test_a_job_that_can_never_run_ends_rejected_with_its_reason(make_scenario: Make) -> None:
    result = run(make_scenario(job("huge", stages="20..32") + job("fits")))
    states = {row.job_id: row.state for row in result.jobs}
    assert states == {"huge": "rejected", "fits": "succeeded"}
    (rejection,) = result.rejections
    assert rejection.job_id == "huge"
    assert rejection.reasons


def test_a_policy_that_holds_for_ever_does_not_hang_the_replay(
    make_scenario: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = Reason(ReasonCode.BEHIND_IN_QUEUE, "never")

    def hold(snapshot: Snapshot) -> Plan:
        holds = (
            Hold(job.spec.job_id, index, (reason,)) for index, job in enumerate(snapshot.waiting, start=1)
        )
        return Plan(snapshot.version, tuple(holds))

    answering(monkeypatch, "bace", hold)
    result = run(make_scenario(job("a") + job("b", "5m")))
    assert [row.state for row in result.jobs] == ["rejected", "rejected"]
    assert [rejection.reasons for rejection in result.rejections] == [(reason,), (reason,)]


def test_a_plan_that_promises_a_gpu_twice_stops_the_replay(
    make_scenario: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(snapshot: Snapshot) -> Plan:
        empty = Snapshot(
            snapshot.version, snapshot.now_s, snapshot.cluster, snapshot.electricity, snapshot.waiting
        )
        return decide(empty, PolicyConfig("ldf"))

    answering(monkeypatch, "bace", blind)
    with pytest.raises(ReplayError, match="rule gpus"):
        run(make_scenario(job("a", stages=8) + job("b", "5s", stages=8)))


def test_prices_that_end_before_the_jobs_do_are_an_error_that_names_them(make_scenario: Make) -> None:
    scenario = make_scenario(job("a", steps=10_000, stages=4), [100.0] * 26)
    with pytest.raises(PricesEndError) as caught:
        run(scenario, "lcf")
    message = str(caught.value)
    assert "region cheap (prices.csv, column z) ends at 2026-01-01T02:00:00Z" in message
    assert "job a" in message


def test_every_plan_that_changes_anything_is_checked(
    make_scenario: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Plan] = []

    def spy(snapshot: Snapshot, plan: Plan) -> Any:
        checked.append(plan)
        return check_plan(snapshot, plan)

    monkeypatch.setattr("scheduler.replay.asking.check_plan", spy)
    result = run(make_scenario(job("a") + job("b", "5s") + job("c", "7s")))
    assert {each.job_id for plan in checked for each in plan.starts} == {row.job_id for row in result.jobs}


def test_progress_is_told_to_the_end(make_scenario: Make) -> None:
    scenario = make_scenario(job("a") + job("b"))
    told: list[tuple[int, int, float]] = []
    replay(scenario, jobs_of(scenario), PolicyConfig(), lambda *now: told.append(now))
    assert told[-1][:2] == (2, 2)
    assert [entry[2] for entry in told] == sorted(entry[2] for entry in told)
