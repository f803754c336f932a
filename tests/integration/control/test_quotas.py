"""A project holds and spends no more than it may, is told so, and goes on as soon as it may again."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select

from scheduler.plan import Preempt, Start
from scheduler.snapshot import Snapshot
from service import dry_runs, explanations, projects
from service.control.billing import bill
from service.control.observe import Observer
from service.control.scheduling import Outcome
from service.db.records import QuotaRecord
from service.db.repositories import allocations
from service.db.session import Session
from service.db.tables import LedgerRow, MonthlySpendingRow
from service.months import month_ends_s, month_of
from tests.control_script import Scripted, runs, start_at
from tests.control_world import ADMIN, START_S, FakeAgent, World, job_document

REGION = "eu-north"


async def quota(
    world: World, gpus: int | None = None, usd: float | None = None, project: str = "nlp"
) -> None:
    await projects.put_quota(world.services, ADMIN, project, QuotaRecord(gpus, usd))


async def held(world: World, project: str = "nlp") -> int:
    return (await world.run(allocations.held_gpus_by_project)).get(project, 0)


async def reason(world: World, job_id: str) -> dict[str, Any]:
    first: dict[str, Any] = (await world.job(job_id)).reasons[0]
    return first


async def test_a_project_never_holds_more_than_its_quota_and_others_do_not_wait_for_it(
    stored_world: World,
) -> None:
    world = stored_world
    [agent] = await world.cluster_of(REGION, slots=12)
    await quota(world, gpus=7)
    mine = [await world.submit() for _ in range(4)]
    other = await world.submit(project="vision")
    assert await world.plan() is Outcome.APPLIED
    assert (await held(world), await held(world, "vision")) == (6, 3)
    states = [(await world.job(job_id)).state for job_id in (*mine, other)]
    assert states == ["starting", "starting", "queued", "queued", "starting"]
    told = await reason(world, mine[2])
    assert (told["code"], told["needed"], told["available"]) == ("QuotaGpus", 3.0, 1.0)

    await world.plan()
    assert await held(world) == 6
    for job_id in mine[:2]:
        await world.cancel(job_id)
    await world.until_stopped([agent])
    await world.plan()
    assert await held(world) == 6
    assert [(await world.job(job_id)).state for job_id in mine[2:]] == ["starting", "starting"]


async def test_a_quota_that_changes_while_a_plan_is_made_makes_the_plan_stale(world: World) -> None:
    await world.cluster_of(REGION, slots=3)
    job_id = await world.submit()
    run = world.services.compute.run

    async def meanwhile(function: Any) -> Any:
        result = await run(function)
        await quota(world, gpus=2)
        return result

    world.services.compute.run = meanwhile  # type: ignore[method-assign]
    assert await world.scheduler.round() is Outcome.STALE
    world.services.compute.run = run  # type: ignore[method-assign]
    await world.plan()
    assert (await held(world), (await reason(world, job_id))["code"]) == (0, "QuotaTooSmall")


async def test_a_job_beyond_its_quota_is_told_so_at_once_waits_and_starts_when_the_quota_grows(
    world: World,
) -> None:
    await world.cluster_of(REGION, slots=6)
    await quota(world, gpus=2)
    job_id = await world.submit()
    at_once = await reason(world, job_id)
    assert (at_once["code"], at_once["needed"], at_once["available"]) == ("QuotaTooSmall", 3.0, 2.0)
    await world.plan()
    assert (await world.job(job_id)).state == "queued"
    assert (await reason(world, job_id))["code"] == "QuotaTooSmall"
    explained = await explanations.explain_job(world.services, ADMIN, job_id)
    assert explained.now is not None
    assert [each.code for each in explained.now.reasons] == ["QuotaTooSmall"]
    dry = await dry_runs.plan(world.services, ADMIN, job_document())
    assert [each.code for each in dry.reasons] == ["QuotaTooSmall"]

    wakes = world.bus.subscribe("planning")
    await quota(world, gpus=3)
    await anext(wakes)
    await world.plan()
    assert (await world.job(job_id)).state == "starting"
    dry = await dry_runs.plan(world.services, ADMIN, job_document())
    assert [(each.code, each.needed, each.available) for each in dry.reasons] == [("QuotaGpus", 3, 0)]


async def test_what_a_stopping_job_still_holds_counts(played: World, script: Scripted) -> None:
    """There are free GPUs, but the project may not have them before its own job has left."""
    world = played
    agents = await world.cluster_of(REGION, slots=8)
    first = await runs(world, script, agents, {REGION: 2})
    await quota(world, gpus=3)
    second = await world.submit(parallelism={"stages": 3})
    script.once(Preempt(first, "the other is shorter"), start_at(second, {REGION: 3}))
    assert await world.plan() is Outcome.APPLIED
    assert ((await world.job(second)).state, await held(world)) == ("queued", 2)
    assert second in await world.promises()
    await world.until_stopped(agents)
    await world.plan()
    assert ((await world.job(second)).state, await held(world)) == ("starting", 3)


async def test_a_promise_above_a_lowered_quota_is_taken_back(played: World, script: Scripted) -> None:
    world = played
    agents = await world.cluster_of(REGION, slots=3)
    first = await runs(world, script, agents, {REGION: 2})
    second = await world.submit(parallelism={"stages": 3})
    script.once(Preempt(first, "the other is shorter"), start_at(second, {REGION: 3}))
    await world.plan()
    assert second in await world.promises()
    await quota(world, gpus=2)
    await world.until_stopped(agents)
    await world.plan()
    assert (await world.promises(), await held(world)) == ({}, 0)


async def test_a_policy_that_would_go_beyond_is_trimmed_whatever_it_is(
    played: World, script: Scripted
) -> None:
    world = played
    await world.cluster_of(REGION, slots=8)
    one, two = await world.submit(), await world.submit()
    await quota(world, gpus=4)

    def greedy(snapshot: Snapshot) -> list[Start]:
        waiting = [job.spec.job_id for job in snapshot.waiting]
        return [start_at(job_id, {REGION: 3})(snapshot) for job_id in waiting]

    script.script = greedy
    await world.plan()
    assert await held(world) == 3
    assert (await world.job(one)).state == "starting"
    assert (await reason(world, two))["code"] == "QuotaGpus"


async def spends(world: World) -> tuple[str, FakeAgent]:
    """A running job that costs 3 × 20 W × 1000 USD/kWh = 60 USD an hour."""
    [agent] = await world.cluster_of(REGION, slots=6)
    await world.price("electricity", REGION, [(-1e7, 1000.0)])
    job_id = await world.submit(training={"steps": 10_000_000})
    await world.plan()
    await world.until_running([agent])
    return job_id, agent


async def test_a_spent_quota_starts_nothing_until_the_month_has_ended(world: World) -> None:
    spender, agent = await spends(world)
    world.clock.advance(3600)
    await bill(world.services, world.leadership)
    await quota(world, usd=50.0)
    waiting = await world.submit(training={"steps": 1})
    await world.plan()
    told = await reason(world, waiting)
    assert (told["code"], told["available"]) == ("QuotaSpend", 0.0)
    assert (await world.job(waiting)).state == "queued"

    await world.cancel(spender)
    await world.until_stopped([agent])
    await world.plan()
    assert (await world.job(waiting)).state == "queued"
    world.clock.advance(month_ends_s(world.clock.now()) - world.clock.now() + 1.0)
    await world.plan()
    assert (await world.job(waiting)).state == "starting", await reason(world, waiting)


async def test_what_running_jobs_will_cost_this_month_is_spoken_for(world: World) -> None:
    await spends(world)
    view, _ = await projects.put_quota(world.services, ADMIN, "nlp", QuotaRecord(None, 1e6))
    waiting = await world.submit(training={"steps": 1})
    await quota(
        world, usd=view.spent_usd_this_month + 60.0
    )  # for an hour of what runs, and the month is longer
    await world.plan()
    assert (await reason(world, waiting))["code"] == "QuotaSpend"
    await quota(world, usd=1e6)
    await world.plan()
    assert (await world.job(waiting)).state == "starting"


async def test_a_month_is_the_sum_of_the_ledger_over_its_boundary(stored_world: World) -> None:
    world = stored_world
    await spends(world)
    boundary_s = month_ends_s(START_S)
    world.clock.advance(boundary_s - world.clock.now() - 100.0)
    for _ in range(10):
        await bill(world.services, world.leadership)
        world.clock.advance(30.0)
    await bill(world.services, world.leadership)

    def sums(session: Session) -> tuple[dict[str, float], dict[str, float]]:
        told: defaultdict[str, float] = defaultdict(float)
        for row in session.execute(select(LedgerRow.from_s, LedgerRow.amount_usd)):
            told[datetime.fromtimestamp(row.from_s, UTC).strftime("%Y-%m")] += row.amount_usd
        kept = {row.month: row.amount_usd for row in session.execute(select(MonthlySpendingRow.__table__))}
        return dict(told), kept

    told, kept = await world.run(sums)
    assert len(kept) == 2
    assert kept == {month: pytest.approx(amount) for month, amount in told.items()}
    [view] = [view for view in await projects.list_all(world.services, ADMIN) if view.project == "nlp"]
    assert view.spent_usd_this_month == pytest.approx(kept[month_of(boundary_s)])


async def test_the_metrics_tell_what_is_held_and_spent_and_how_much_may_be(world: World) -> None:
    await spends(world)
    world.clock.advance(3600)
    await bill(world.services, world.leadership)
    await quota(world, gpus=5, usd=1000.0)
    await Observer(world.services).observe()
    page = world.services.metrics.exposition().decode().splitlines()
    told = dict(line.rsplit(" ", 1) for line in page if line.startswith("bace_project_"))
    spent = float(told.pop('bace_project_spent_month_dollars{queue="nlp"}'))
    assert spent == pytest.approx(60.0, rel=0.01)
    assert told == {
        'bace_project_held_gpus{queue="nlp"}': "3.0",
        'bace_project_quota_gpus{queue="nlp"}': "5.0",
        'bace_project_quota_month_dollars{queue="nlp"}': "1000.0",
    }
