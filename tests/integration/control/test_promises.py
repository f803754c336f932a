"""What is promised is kept or taken back, whatever happens between a stop and the start that it makes room for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.plan import Preempt
from service import nodes
from service.control.errors import FencedError
from service.control.scheduling import Outcome
from service.db.repositories import cluster
from service.db.repositories import leader as leader_row
from tests.control_script import WIDE, Scripted, move_to, runs, start_at, trains_to
from tests.control_world import ADMIN, FakeAgent, World

REGIONS = ("eu-north", "eu-west", "us-east")
WHY = "a shorter job needs its place"


async def moving(world: World, script: Scripted, agents: list[FakeAgent]) -> str:
    """A job with seven steps behind it that is told to go from eu-north to eu-west, with two stages."""
    job_id = await runs(world, script, agents, {"eu-north": 1})
    await trains_to(world, agents, job_id, 1, 7)
    script.once(move_to(job_id, {"eu-west": 2}))
    assert await world.plan() is Outcome.APPLIED
    assert (await world.job(job_id)).state == "stopping"
    return job_id


async def lose_one(world: World, others: list[FakeAgent]) -> None:
    """Only these go on speaking, until the node of another is lost."""
    for _ in range(20):
        world.clock.advance(20)
        await world.beats(others)
        if await world.liveness.sweep():
            return
    pytest.fail("no node was lost")


async def test_a_promise_is_kept_by_the_next_leader_and_never_by_a_deposed_one(
    played_on_both: World, script: Scripted
) -> None:
    world = played_on_both
    agents = await world.cluster_of(*REGIONS, slots=2)
    job_id = await moving(world, script, agents)
    deposed, epoch = world.scheduler, world.leadership.epoch
    await world.until_stopped(agents)

    world.clock.advance(world.services.settings.leader_lease_s + 1)
    await world.lead("another")
    with pytest.raises(FencedError):
        await deposed.plan()
    assert (await world.promises())[job_id].epoch == epoch
    assert (await world.job(job_id)).state == "queued"

    await world.plan()
    _, second = await world.allocations(job_id)
    assert (second.epoch, second.first_step) == (epoch + 1, 8)
    assert await world.promises() == {}
    await world.until_running(agents)
    assert (await world.job(job_id)).state == "running"


async def test_a_server_that_is_started_again_keeps_its_promises(
    played_on_both: World, script: Scripted
) -> None:
    """Nothing of a promise is in the memory of the process that made it."""
    world = played_on_both
    agents = await world.cluster_of(*REGIONS, slots=2)
    job_id = await moving(world, script, agents)
    again = World(world.engine, policy=script.name)
    again.clock, again.ids = world.clock, world.ids
    again.services = replace(again.services, clock=world.clock, ids=world.ids)
    again.clock.advance(again.services.settings.leader_lease_s + 1)
    await again.lead("restarted")
    for agent in agents:
        agent.world = again
    await again.until_stopped(agents)
    await again.plan()
    await again.until_running(agents)
    assert (await again.job(job_id)).generation == 2
    assert [part["stages"] for part in (await again.allocation(job_id)).placement["segments"]] == [2]


async def test_a_promise_on_a_node_that_is_lost_is_taken_back(
    played_on_both: World, script: Scripted
) -> None:
    world = played_on_both
    agents = await world.cluster_of(*REGIONS, slots=2)
    north, west, east = agents
    job_id = await moving(world, script, agents)
    north.refuses_to_stop = True  # the node where it was to go falls silent while it stops
    await lose_one(world, [north, east])
    await world.plan()
    assert await world.promises() == {}
    kind, data = (await world.told(job_id))[-1]
    assert (kind, data["reason"]) == (
        "job.promise_broken",
        "eu-west/cpu-slot: 2 GPUs promised, 0 are free",
    )
    north.refuses_to_stop = False
    await world.until_stopped([north])
    job = await world.job(job_id)
    assert (job.state, job.retries, job.checkpoint_step) == ("queued", 0, 7)
    script.once(start_at(job_id, {"eu-north": 1}))
    await world.plan()
    assert (await world.job(job_id)).state == "starting", "it is planned as any other"
    assert world.services.metrics.registry.get_sample_value("bace_broken_promises_total") == 1
    assert west.started == []


async def test_a_node_that_is_drained_takes_back_what_was_promised_on_it(
    played: World, script: Scripted
) -> None:
    agents = await played.cluster_of(*REGIONS, slots=2)
    job_id = await moving(played, script, agents)
    await nodes.drain(played.services, ADMIN, "node-eu-west", None)
    await played.until_stopped(agents)
    await played.plan()
    assert await played.promises() == {}
    assert (await played.job(job_id)).state == "queued"


async def test_a_promise_whose_link_is_gone_or_narrowed_is_taken_back(
    played: World, script: Scripted
) -> None:
    agents = await played.cluster_of(*REGIONS, slots=2)
    job_id = await runs(played, script, agents, {"eu-north": 1})
    script.once(move_to(job_id, {"eu-north": 1, "eu-west": 1}))
    await played.plan()

    def narrow(session):  # type: ignore[no-untyped-def]
        link = cluster.link(session, "eu-north", "eu-west")
        cluster.change_link(session, link, capacity_bps=1e6)
        leader_row.capacity_changed(session)

    await played.run(narrow)
    await played.plan()
    assert await played.promises() == {}
    kind, data = (await played.told(job_id))[-1]
    assert kind == "job.promise_broken"
    assert "eu-north->eu-west" in data["reason"]


@pytest.mark.parametrize("when", ["while it stops", "when it waits for its place"])
async def test_a_promised_job_that_is_cancelled_ends_and_what_was_promised_is_free(
    played_on_both: World, script: Scripted, when: str
) -> None:
    world = played_on_both
    agents = await world.cluster_of(*REGIONS, slots=2)
    other = await runs(world, script, agents, {"eu-west": 1})
    job_id = await runs(world, script, agents, {"eu-north": 1})
    script.once(Preempt(other, WHY), move_to(job_id, {"eu-west": 2}))
    await world.plan()
    north, west, _ = agents
    if when == "while it stops":
        await world.cancel(job_id)
        assert await world.promises() == {}
        assert (await world.job(job_id)).state == "stopping"
        await world.until_stopped(agents)
    else:
        await world.until_stopped([north])
        assert await world.plan() is Outcome.EMPTY, "the other has not left yet"
        assert (await world.job(job_id)).state == "queued"
        await world.cancel(job_id)
        assert await world.promises() == {}
        await world.until_stopped([west])
    assert (await world.job(job_id)).state == "cancelled"
    assert (await world.held())[0] == 0
    script.once(start_at(other, {"eu-west": 2}))
    assert await world.plan() is Outcome.APPLIED
    assert (await world.job(other)).state == "starting"


async def test_a_job_that_ends_while_it_is_to_be_moved_has_ended(played: World, script: Scripted) -> None:
    agents = await played.cluster_of(*REGIONS, slots=2)
    job_id = await runs(played, script, agents, {"eu-north": 1}, training={"steps": 7})
    await trains_to(played, agents, job_id, 1, 6)
    script.once(move_to(job_id, {"eu-west": 2}))
    await played.plan()
    agents[0].step(7)
    agents[0].exit(0)
    await played.beats(agents)
    job = await played.job(job_id)
    assert (job.state, job.reported_steps) == ("succeeded", 7)
    assert await played.promises() == {}


async def test_a_stage_that_fails_as_it_stops_is_no_failure_of_the_job(
    played: World, script: Scripted
) -> None:
    """It was told to end: how it did is handled as with every stop, and the promise holds."""
    agents = await played.cluster_of(*REGIONS, slots=2)
    job_id = await moving(played, script, agents)
    agents[0].exit(-9, cause="stage-died")
    await played.beats(agents)
    job = await played.job(job_id)
    assert (job.state, job.retries, job.checkpoint_step) == ("queued", 0, 7)
    await played.plan()
    assert (await played.job(job_id)).generation == 2


async def test_a_node_lost_with_a_job_that_stops_does_not_stop_the_move(
    played: World, script: Scripted
) -> None:
    agents = await played.cluster_of(*REGIONS, slots=2)
    _, west, east = agents
    job_id = await moving(played, script, agents)
    await lose_one(played, [west, east])
    assert (await played.job(job_id)).state == "queued"
    await played.plan()
    await played.until_running([west, east])
    job = await played.job(job_id)
    assert (job.state, job.generation) == ("running", 2)


async def test_a_promise_that_is_too_old_is_taken_back(played: World, script: Scripted) -> None:
    agents = await played.cluster_of(*REGIONS, slots=2)
    agents[0].refuses_to_stop = True
    job_id = await moving(played, script, agents)
    await played.beats(agents)
    await played.plan()
    assert set(await played.promises()) == {job_id}
    played.clock.advance(played.services.settings.promise_max_age_s)
    await played.beats(agents)
    await played.plan()
    assert await played.promises() == {}
    assert (await played.job(job_id)).state == "stopping"
    assert "within 600 s" in (await played.told(job_id))[-1][1]["reason"]


async def test_a_promise_for_which_no_port_is_free_waits_for_one(played: World, script: Scripted) -> None:
    north, west = agents = await played.cluster_of("eu-north", "eu-west", slots=3)
    west.address = "10.0.0.2"
    await west.join(port_first=29500, port_last=29500, gpus=3)
    holder = await runs(played, script, agents, {"eu-west": 1})
    job_id = await runs(played, script, agents, {"eu-north": 1})
    waiting = await played.submit(**WIDE)
    script.once(Preempt(job_id, WHY), start_at(waiting, {"eu-west": 1, "eu-north": 3}))
    await played.plan()
    await played.until_stopped([north])
    await played.plan()
    assert (await played.job(waiting)).reasons[0]["code"] == "PortsExhausted"
    assert set(await played.promises()) == {waiting}
    await played.cancel(holder)
    await played.until_stopped([west])
    await played.plan()
    assert (await played.job(waiting)).state == "starting"
    assert await played.promises() == {}
