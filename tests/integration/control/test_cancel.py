"""Cancelling at every edge of a job's life: nothing is launched afterwards, and in the end nothing is held."""

from __future__ import annotations

import pytest

from service.control.scheduling import Outcome
from service.errors import ConflictError
from tests.control_world import FakeAgent, World

REGIONS = ("eu-north", "eu-west", "us-east")
EDGES = ("queued", "committed", "delivered", "running", "stopping", "back-off")


async def _until(world: World, agents: list[FakeAgent], edge: str) -> str:
    job_id = await world.submit()
    if edge == "queued":
        return job_id
    await world.plan()
    if edge == "committed":
        return job_id
    await world.beats(agents)
    if edge == "delivered":
        return job_id
    for agent in agents:
        agent.ready()
    await world.beats(agents)
    if edge == "running":
        return job_id
    agents[0].exit(1)
    await agents[0].beat()
    if edge == "stopping":
        return job_id
    await world.beats(agents)
    await world.beats(agents)
    return job_id


@pytest.mark.parametrize("edge", EDGES)
async def test_nothing_is_launched_after_a_cancellation_and_nothing_stays_held(
    world: World, edge: str
) -> None:
    agents = await world.cluster_of(*REGIONS)
    job_id = await _until(world, agents, edge)
    started = [list(agent.started) for agent in agents]
    job = await world.cancel(job_id)
    if edge in ("queued", "back-off"):
        assert job.state == "cancelled", "a waiting job ends at once"
    assert await world.cancel(job_id) == await world.job(job_id), "again changes nothing"
    for _ in range(3):
        await world.plan()
        await world.beats(agents)
    job = await world.job(job_id)
    assert job.state == "cancelled"
    assert job.finished_at_s is not None
    assert await world.held() == (0, 0, 0)
    assert [agent.started for agent in agents] == started
    assert not any(agent.alive() for agent in agents)
    world.clock.advance(1000)
    assert await world.plan() is Outcome.EMPTY


async def test_a_plan_made_before_a_cancellation_is_stale(world: World) -> None:
    await world.cluster_of(*REGIONS)
    job_id = await world.submit()
    compute = world.services.compute
    decided = compute.run

    async def cancelled_meanwhile(function):  # type: ignore[no-untyped-def]
        result = await decided(function)
        await world.cancel(job_id)
        return result

    compute.run = cancelled_meanwhile  # type: ignore[method-assign]
    assert await world.scheduler.round() is Outcome.STALE
    assert (await world.job(job_id)).state == "cancelled"
    assert await world.held() == (0, 0, 0)


async def test_what_has_ended_cannot_be_cancelled(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    job_id = await _until(world, agents, "running")
    agents[0].exit(13, cause="out-of-memory")
    for _ in range(3):
        await world.beats(agents)
    with pytest.raises(ConflictError, match="has already failed"):
        await world.cancel(job_id)


async def test_a_rejected_job_can_be_cancelled_before_the_cluster_grows(world: World) -> None:
    agents = await world.cluster_of("eu-north")
    job_id = await world.submit()
    await world.plan()
    assert (await world.job(job_id)).state == "rejected"
    await world.cancel(job_id)
    await agents[0].join(gpus=8)
    await world.plan()
    assert (await world.job(job_id)).state == "cancelled"
    assert await world.held() == (0, 0, 0)
