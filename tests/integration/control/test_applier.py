"""The one place where GPUs are promised: all of a plan or nothing, by the leader alone, and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete, event, insert, select, update

from scheduler.policies import PolicyConfig, decide
from service import topics
from service.adapters.compute import ThreadCompute
from service.adapters.database import ThreadPoolDb
from service.control import applier, leader
from service.control.applier import Grounds, PackedPlan
from service.control.errors import DoublePromiseError, FencedError, StalePlanError
from service.control.scheduling import Outcome, Scheduler
from service.db.engine import make_engine
from service.db.repositories import cluster
from service.db.repositories import leader as leader_row
from service.db.session import Session
from service.db.tables import AllocationRow, Base, HeldGpuRow
from service.lifecycle import Moment
from tests.control_world import World

REGIONS = ("eu-north", "eu-west", "us-east")


class FaultError(Exception):
    """Planted by a test."""


async def _packed(world: World) -> PackedPlan:
    snapshot = await world.snapshot()
    plan = decide(snapshot, PolicyConfig())
    assert plan.starts
    return applier.prepare(snapshot, plan, [world.ids.new("alloc") for _ in plan.starts])


def _apply(world: World, packed: PackedPlan) -> Callable[[Session], None]:
    grounds = Grounds(world.leadership.epoch, Moment(world.clock.now(), "test"), "file:///srv/checkpoints")
    return lambda session: applier.apply_plan(session, packed, grounds)


def _all_rows(session: Session) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that is stored, table by table."""
    return {
        table.name: sorted((tuple(row) for row in session.execute(select(table))), key=repr)
        for table in Base.metadata.sorted_tables
    }


async def test_a_fault_at_any_statement_of_the_applier_leaves_nothing_behind(world: World) -> None:
    await world.cluster_of(*REGIONS, slots=2)
    for _ in range(2):
        await world.submit()
    await world.submit(parallelism={"stages": 6})
    packed = await _packed(world)
    assert packed.starts
    (waiting, *_) = [hold.job_id for hold in packed.holds]
    before = await world.run(_all_rows)
    statements = 0
    raise_at: int | None = None

    def count(*_args: object) -> None:
        nonlocal statements
        statements += 1
        if statements == raise_at:
            raise FaultError(f"at statement {statements}")

    event.listen(world.engine, "before_cursor_execute", count)
    try:
        at = 0
        while True:
            at, statements, raise_at = at + 1, 0, at + 1
            try:
                await world.leadership.write(_apply(world, packed))
            except FaultError:
                raise_at = None
                assert await world.run(_all_rows) == before, f"statement {at} left something behind"
            else:
                break
    finally:
        event.remove(world.engine, "before_cursor_execute", count)
    assert at > 20, "every statement of the transaction was made to fail once"
    assert (await world.held())[0] == 6
    assert (await world.job(waiting)).reasons[0]["code"] != "PlanPending"


async def test_a_plan_for_another_version_is_stale_and_the_round_begins_again(world: World) -> None:
    await world.cluster_of(*REGIONS)
    job_id = await world.submit()
    packed = await _packed(world)
    await world.run(leader_row.capacity_changed)
    with pytest.raises(StalePlanError):
        await world.leadership.write(_apply(world, packed))
    assert await world.held() == (0, 0, 0)
    assert await world.plan() is Outcome.APPLIED
    assert (await world.job(job_id)).state == "starting"


async def test_a_plan_is_not_applied_twice(world: World) -> None:
    await world.cluster_of(*REGIONS)
    await world.submit()
    packed = await _packed(world)
    await world.leadership.write(_apply(world, packed))
    with pytest.raises(StalePlanError):
        await world.leadership.write(_apply(world, packed))
    assert await world.held() == (3, 4, 1)


async def test_a_job_without_a_free_port_waits_alone(world: World) -> None:
    (agent,) = await world.cluster_of("eu-north", slots=4)
    await agent.join(gpus=4, port_last=29501)
    job_ids = [await world.submit(parallelism={"stages": 1}) for _ in range(3)]
    assert await world.plan() is Outcome.APPLIED
    found = [await world.job(job_id) for job_id in job_ids]
    assert sorted(job.state for job in found) == ["queued", "starting", "starting"]
    (waits,) = [job for job in found if job.state == "queued"]
    assert waits.reasons[0]["code"] == "PortsExhausted"
    assert await world.held() == (2, 0, 2)
    await agent.beat()
    agent.exit(13, cause="out-of-memory")
    await agent.beat()
    assert await world.plan() is Outcome.APPLIED
    assert (await world.job(waits.job_id)).state == "starting"


async def test_of_many_starts_the_first_begin_and_the_others_in_the_rounds_that_follow_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applier, "MAX_STARTS", 2)
    await world.cluster_of("eu-north", slots=5)
    job_ids = [await world.submit(parallelism={"stages": 1}) for _ in range(5)]
    wakes = world.bus.subscribe(topics.PLANNING)
    begun = []
    for _ in range(3):
        await world.plan()
        states = [(await world.job(job_id)).state for job_id in job_ids]
        begun.append(states.count("starting"))
        assert states == sorted(states, reverse=True), "in their order"
        if begun[-1] < len(job_ids):
            await anext(wakes)  # the next round is woken
    assert begun == [2, 4, 5]


async def test_a_deposed_leader_changes_nothing(stored_world: World) -> None:
    world = stored_world
    agents = await world.cluster_of(*REGIONS)
    job_id = await world.submit()
    deposed, scheduler, liveness = world.leadership, world.scheduler, world.liveness
    world.clock.advance(world.services.settings.leader_lease_s + 1)
    await world.lead("another")
    before = await world.run(_all_rows)
    with pytest.raises(FencedError):
        await scheduler.plan()
    with pytest.raises(FencedError):
        await deposed.renew()
    await deposed.resign()
    world.clock.advance(10)
    for _ in range(60):
        world.clock.advance(10)
        try:
            await liveness.sweep()
        except FencedError:
            break
    else:
        pytest.fail("a deposed leader judged nodes")
    assert await world.run(_all_rows) == before
    fenced = world.services.metrics.registry.get_sample_value("bace_fenced_writes_total")
    assert fenced == 3
    await world.lead("another")
    await world.beats(agents)
    assert await world.plan() is Outcome.APPLIED
    assert (await world.job(job_id)).state == "starting"


async def test_leadership_passes_only_when_the_lease_has_run_out(world: World) -> None:
    epoch = world.leadership.epoch
    assert await leader.take(world.services, "other") is None
    await world.leadership.renew()
    world.clock.advance(world.services.settings.leader_lease_s + 1)
    other = await leader.take(world.services, "other")
    assert other is not None
    assert other.epoch == epoch + 1
    assert await leader.take(world.services, "world") is None
    await other.resign()
    again = await leader.take(world.services, "world")
    assert again is not None
    assert again.epoch == epoch + 2


async def test_a_gpu_that_is_held_cannot_be_promised_again(stored_world: World) -> None:
    world = stored_world
    await world.cluster_of(*REGIONS)
    first = await world.submit()
    await world.plan()
    allocation = await world.allocation(first)
    # A planner with a defect: its snapshot shows a held GPU as free.
    await world.run(_forget_holdings)
    second = await world.submit()
    packed = await _packed(world)
    await world.run(
        lambda session: session.execute(
            insert(HeldGpuRow).values(
                node_id="node-eu-north", gpu_index=0, project="nlp", allocation_id=allocation.allocation_id
            )
        )
    )
    with pytest.raises(DoublePromiseError):
        await world.leadership.write(_apply(world, packed))
    assert (await world.job(second)).state == "queued"
    assert (await world.held())[0] == 1


async def test_bandwidth_cannot_be_promised_twice(world: World) -> None:
    await world.cluster_of(*REGIONS, slots=2)
    await world.submit()
    packed = await _packed(world)
    start = packed.starts[0]
    greedy = replace(
        start.start,
        placement=replace(
            start.start.placement,
            cuts=tuple(replace(cut, bandwidth_bps=11e9) for cut in start.start.placement.cuts),
        ),
    )
    assert greedy.placement.cuts
    with pytest.raises(DoublePromiseError, match="link"):
        await world.leadership.write(_apply(world, replace(packed, starts=(replace(start, start=greedy),))))
    assert await world.held() == (0, 0, 0)


async def test_a_shared_uplink_cannot_be_promised_twice(world: World) -> None:
    await world.cluster_of(*REGIONS)
    await world.submit()
    packed = await _packed(world)
    region = packed.starts[0].start.placement.cuts[0].src

    def narrow(session: Session) -> None:
        record = cluster.region(session, region)
        assert record is not None
        cluster.change_region(session, record, uplink_bps=1.0)

    await world.run(narrow)
    with pytest.raises(DoublePromiseError, match="uplink"):
        await world.leadership.write(_apply(world, packed))


@pytest.mark.postgres
async def test_of_two_planners_racing_one_wins_and_the_other_is_stale(postgres_url: str) -> None:
    """Both believe that they lead the same epoch: the snapshot's version decides, in the database."""
    engines = [make_engine(postgres_url), make_engine(postgres_url)]
    worlds = [World(engine) for engine in engines]
    await worlds[0].start()
    await worlds[0].cluster_of(*REGIONS, slots=3)
    job_ids = [await worlds[0].submit() for _ in range(3)]
    schedulers = []
    for world, engine in zip(worlds, engines, strict=True):
        services = replace(
            world.services, db=ThreadPoolDb(engine, world.bus, threads=2), compute=ThreadCompute(1)
        )
        schedulers.append(Scheduler(services, replace(worlds[0].leadership, services=services)))
    worlds[1].ids._count = 1_000_000
    outcomes = await asyncio.gather(*(scheduler.round() for scheduler in schedulers))
    assert sorted(outcomes) in ([Outcome.APPLIED, Outcome.STALE], [Outcome.APPLIED, Outcome.EMPTY])
    assert (await worlds[0].held())[0] == 9
    for job_id in job_ids:
        assert len(await worlds[0].allocations(job_id)) == 1
    for scheduler in schedulers:
        scheduler._services.db.close()
        scheduler._services.compute.close()


def _forget_holdings(session: Session) -> None:
    session.execute(delete(HeldGpuRow))
    session.execute(update(AllocationRow).values(state="ended"))
