"""Rows → Snapshot: what planning sees is what the tables say, on both databases."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from scheduler.job import Elasticity, Schedule
from scheduler.network import Residual
from scheduler.placement import Cut, Placement, Segment
from scheduler.restart import is_restarting
from scheduler.snapshot import Snapshot
from service import nodes, placements
from service.control.billing import bill
from service.db.repositories import access, prices
from service.db.session import Session
from tests.control_world import ADMIN, START_S, World

HOUR_S = 3600.0


@pytest.fixture
async def world(empty: Engine) -> World:
    world = World(empty)
    await world.start()
    return world


async def _snapshot(world: World) -> Snapshot:
    now_s = world.clock.now()
    return await world.services.db.read(lambda session: world.services.snapshots.load(session, now_s))


def test_a_placement_survives_its_document() -> None:
    placement = Placement(
        (Segment("a", "H100", 2, 4), Segment("a", "A100", 1, 4), Segment("b", "H100", 3, 4)),
        (Cut("a", "b", 1e9, 0.012),),
        Schedule.SLACK_1F1B,
        (8, 7, 6, 3, 2, 1),
    )
    for lag in ((), (0, 1, 2, 5, 6, 7)):
        lagging = replace(placement, lag=lag)
        assert placements.from_document(placements.to_document(lagging)) == lagging
    older = {name: value for name, value in placements.to_document(placement).items() if name != "lag"}
    assert placements.from_document(older) == placement


async def test_held_gpus_and_bandwidth_are_gone_from_what_is_free(world: World) -> None:
    await world.cluster_of("eu-north", "eu-west", "us-east", slots=2)
    job_id = await world.submit()
    await world.plan()
    snapshot = await _snapshot(world)
    [running] = snapshot.running
    assert (running.spec.job_id, running.remaining_steps) == (job_id, 4)
    residual = Residual.of(snapshot)
    held = {segment.region: segment.gpus for segment in running.allocation.placement.segments}
    for region in snapshot.cluster.regions:
        free = residual.free_gpus((region, "cpu-slot"))
        assert free == 2 - held.get(region, 0)
        assert free == sum(len(node.free_gpus) for node in snapshot.cluster.nodes if node.region == region)


async def test_a_cordoned_node_offers_nothing_and_what_it_holds_still_counts(world: World) -> None:
    await world.cluster_of("eu-north", slots=4)
    await world.submit()
    await world.plan()
    await nodes.cordon(world.services, ADMIN, "node-eu-north", None)
    snapshot = await _snapshot(world)
    assert Residual.of(snapshot).free_gpus(("eu-north", "cpu-slot")) == 0
    assert snapshot.cluster.pools["eu-north", "cpu-slot"].gpus == 3


async def test_only_what_was_published_is_known_and_a_correction_holds(world: World) -> None:
    await world.cluster_of("eu-north")
    await world.price("electricity", "eu-north", [(-2 * HOUR_S, 0.3), (0.0, 0.1), (HOUR_S, 0.2)])
    world.clock.advance(60.0)
    corrected = START_S + 30.0
    await world.run(lambda session: _correct(session, START_S, corrected, 0.15))
    snapshot = await _snapshot(world)
    known = snapshot.electricity["eu-north"]
    assert [known.at(START_S + offset) for offset in (-HOUR_S, 0.0, HOUR_S, 9 * HOUR_S)] == [
        0.3,
        0.15,
        0.2,
        0.2,
    ]
    early = await world.services.db.read(lambda s: world.services.snapshots.load(s, START_S + 10.0))
    assert early.electricity["eu-north"].at(START_S) == 0.1
    before = await world.services.db.read(lambda s: world.services.snapshots.load(s, START_S - 1.0))
    assert before.electricity == {}


async def test_a_job_in_back_off_is_not_planned_and_a_checkpoint_keeps_its_regions(world: World) -> None:
    agents = await world.cluster_of("eu-north", "eu-west", "us-east")
    job_id = await world.submit()
    await world.plan()
    await world.beats(agents)
    for agent in agents:
        agent.ready()
    await world.beats(agents)
    agents[0].checkpoint(2)
    agents[0].exit(1)
    for _ in range(3):
        await world.beats(agents)
    job = await world.job(job_id)
    assert (job.state, job.checkpoint_step) == ("queued", 2)
    assert (await _snapshot(world)).waiting == ()
    world.clock.advance(job.not_before_s - world.clock.now())
    [waiting] = (await _snapshot(world)).waiting
    assert (waiting.remaining_steps, waiting.generation) == (2, 2)
    assert waiting.require_regions == frozenset(job.checkpoint_regions)


async def test_unbounded_regions_are_unbounded(world: World) -> None:
    await world.cluster_of("eu-north")
    region = (await _snapshot(world)).cluster.regions["eu-north"]
    assert (region.uplink_bps, region.downlink_bps) == (math.inf, math.inf)


async def test_a_job_that_keeps_its_stages_goes_on_with_those_its_checkpoint_has(world: World) -> None:
    agents = await world.cluster_of("eu-north", slots=4)
    kept, free = [
        await world.submit(parallelism={"stages": "1..4"}, elasticity=elasticity)
        for elasticity in ("restart", "resize")
    ]
    await world.plan()
    await world.until_running(agents)
    stages = sum(segment["stages"] for segment in (await world.allocation(kept)).placement["segments"])
    for _ in range(2):
        agents[0].exit(1)
        await world.until_stopped(agents)
        world.clock.advance(100)
        snapshot = await _snapshot(world)
        assert {job.spec.job_id: job.stages for job in snapshot.waiting}[kept] is None, "nothing is saved yet"
        await world.plan()
        await world.until_running(agents)
    key = next(key for key in agents[0].alive() if agents[0].known[key].job_id == kept)
    agents[0].checkpoint(2, key=key)
    agents[0].exit(1)
    await world.until_stopped(agents)
    world.clock.advance(100)
    waiting = {job.spec.job_id: job for job in (await _snapshot(world)).waiting}
    assert waiting[kept].stages == stages
    if free in waiting:
        assert waiting[free].stages is None


async def test_what_earlier_generations_cost_is_told_and_when_the_job_began_to_wait(world: World) -> None:
    agents = await world.cluster_of("eu-north", slots=3)
    await world.price("electricity", "eu-north", [(-HOUR_S, 0.5)])
    job_id = await world.submit()
    [waiting] = (await _snapshot(world)).waiting
    assert (waiting.spent_usd, waiting.waits_since_s, waiting.generation) == (0.0, None, 1)
    await world.plan()
    await world.until_running(agents)
    world.clock.advance(10 * HOUR_S)
    [running] = (await _snapshot(world)).running
    assert running.spent_usd == 0.0, "what this generation costs is not yet told"
    agents[0].exit(1)
    await world.until_stopped(agents)
    ended_s = (await world.allocations(job_id))[0].ended_at_s
    world.clock.advance(100)
    [waiting] = (await _snapshot(world)).waiting
    assert waiting.spent_usd == pytest.approx(3 * 0.005 * 10 * 0.5, rel=0.01)
    assert waiting.waits_since_s == ended_s
    await world.plan()
    [running] = (await _snapshot(world)).running
    assert running.spent_usd == waiting.spent_usd


async def test_shares_are_those_of_projects_that_have_one_and_jobs_that_ended_are_remembered(
    world: World,
) -> None:
    agents = await world.cluster_of("eu-north", slots=3)
    ended = []
    for number in range(3):
        job_id = await world.submit(name=f"job-{number}", training={"steps": 1})
        await world.plan()
        await world.until_running(agents)
        agents[0].step(1)
        agents[0].exit(0)
        await world.beats(agents)
        world.clock.advance(1)
        ended.append(job_id)
    cancelled = await world.submit(name="cancelled", project="vision")
    await world.cancel(cancelled)
    await world.run(lambda session: access.change_share(session, "nlp", 2.0))
    snapshot = await _snapshot(world)
    assert [spec.job_id for spec in snapshot.recent] == [cancelled, *reversed(ended)]
    assert snapshot.shares == {"nlp": 2.0}


async def test_a_job_that_starts_has_made_no_progress_until_all_its_stages_are_up(world: World) -> None:
    agents = await world.cluster_of("eu-north", "eu-west", slots=2)
    await world.submit()
    await world.plan()
    for _ in range(3):
        world.clock.advance(40)
        now_s = world.clock.now()
        [running] = (await _snapshot(world)).running
        assert running.ready_s is not None
        assert running.ready_s > now_s
        assert is_restarting(running, now_s)
    await world.until_running(agents)
    [running] = (await _snapshot(world)).running
    assert running.ready_s == (await world.allocation(running.spec.job_id)).running_at_s
    assert not is_restarting(running, world.clock.now())


async def test_a_running_job_may_be_moved_only_where_its_checkpoint_can_be_reached(world: World) -> None:
    north, west, east = agents = await world.cluster_of("eu-north", "eu-west", "us-east", slots=3)
    west.address, east.address = north.address, "10.9.9.9"
    await world.beats(agents)
    await east.join(gpus=3)
    ids = [
        await world.submit(placement={"regions": ["eu-north"]}),
        await world.submit(placement={"regions": ["eu-*", "us-*"]}, name="anywhere"),
        await world.submit(
            checkpoint={"every_steps": 10, "uri": "s3://ckpt"},
            run={"command": ["train"]},
            elasticity="restart",
        ),
    ]
    await world.plan()
    running = {job.spec.job_id: job for job in (await _snapshot(world)).running}
    assert set(running) == set(ids)
    assert running[ids[0]].spec.placement.regions == ("eu-north",), "what the user says holds"
    stands_in = running[ids[1]].allocation.placement.regions
    reach = ("us-east",) if stands_in == ("us-east",) else ("eu-north", "eu-west")
    assert running[ids[1]].spec.placement.regions == reach
    assert running[ids[2]].spec.placement.regions == (), "a store can be reached from everywhere"


async def test_what_leaves_a_node_that_takes_nothing_new_is_not_planned_with(world: World) -> None:
    agents = await world.cluster_of("eu-north", "eu-west", slots=3)
    job_id = await world.submit()
    await world.plan()
    await world.until_running(agents)
    [region] = (await _snapshot(world)).running[0].allocation.placement.regions
    await nodes.drain(world.services, ADMIN, f"node-{region}", None)
    assert (await world.job(job_id)).state == "stopping"
    snapshot = await _snapshot(world)
    [running] = snapshot.running
    assert (running.stopping, running.spec.elasticity) == (False, Elasticity.NONE)
    for residual in (Residual.of(snapshot), Residual.after_stops(snapshot)):
        assert residual.free_gpus((region, "cpu-slot")) == 0


def _correct(session: Session, valid_from_s: float, known_at_s: float, value: float) -> None:
    [series] = prices.series(session, kind="electricity")
    prices.add_points(session, series.series_id, [(valid_from_s, known_at_s, value)])


async def test_a_price_that_stopped_being_told_long_ago_is_unknown_and_one_that_was_set_once_is_not(
    world: World,
) -> None:
    await world.cluster_of("eu-north", "eu-west")
    months_ago = -90 * 24 * HOUR_S
    await world.price("electricity", "eu-north", [(months_ago + hour * HOUR_S, 0.1) for hour in range(24)])
    await world.price("electricity", "eu-west", [(months_ago, 0.2)])
    snapshot = await _snapshot(world)
    assert snapshot.electricity["eu-north"].at(snapshot.now_s) is None
    assert snapshot.electricity["eu-west"].at(snapshot.now_s) == 0.2


async def test_what_the_present_generation_was_billed_is_told_of_a_job_with_a_budget(world: World) -> None:
    agents = await world.cluster_of("eu-north", slots=6)
    await world.price("electricity", "eu-north", [(-HOUR_S, 0.5)])
    capped, free = await world.submit(budget_usd=100.0), await world.submit()
    await world.plan()
    await world.until_running(agents)
    world.clock.advance(10 * HOUR_S)
    await bill(world.services, world.leadership)
    running = {job.spec.job_id: job for job in (await _snapshot(world)).running}
    assert running[capped].generation_usd == pytest.approx(3 * 0.02 * 10 * 0.5, rel=0.01)  # busy
    assert running[capped].spec.budget_usd == 100.0
    assert running[free].generation_usd == 0.0
