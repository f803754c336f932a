"""Rows → Snapshot: what planning sees is what the tables say, on both databases."""

from __future__ import annotations

import math

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from scheduler.job import Schedule
from scheduler.network import Residual
from scheduler.placement import Cut, Placement, Segment
from scheduler.snapshot import Snapshot
from service import nodes, placements
from service.db.repositories import prices
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
    assert placements.from_document(placements.to_document(placement)) == placement


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


def _correct(session: Session, valid_from_s: float, known_at_s: float, value: float) -> None:
    [series] = prices.series(session, kind="electricity")
    prices.add_points(session, series.series_id, [(valid_from_s, known_at_s, value)])
