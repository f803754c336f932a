"""Nodes that fall silent: what ran there has ended, jobs go on elsewhere or wait with a true reason, and come back."""

from __future__ import annotations

from service.control.scheduling import Outcome
from service.db.repositories import cluster
from service.lifecycle import Moment, NodeState, move_node
from tests.control_world import ADMIN, FakeAgent, World

REGIONS = ("eu-north", "eu-west", "us-east")


async def _running(world: World, agents: list[FakeAgent], **changes: object) -> str:
    job_id = await world.submit(**changes)
    assert await world.plan() is Outcome.APPLIED
    await world.beats(agents)
    for agent in agents:
        agent.ready()
    await world.beats(agents)
    assert (await world.job(job_id)).state == "running"
    return job_id


async def _silence(world: World, agents: list[FakeAgent], seconds: float) -> None:
    """Time passes with sweeps at their usual pace while only `agents` are heard."""
    end_s = world.clock.now() + seconds
    while world.clock.now() < end_s:
        world.clock.advance(20)
        await world.beats(agents)
        await world.liveness.sweep()


async def _state(world: World, agent: FakeAgent) -> str:
    node = await world.run(lambda session: cluster.node(session, agent.node_id))
    assert node is not None
    return node.state


async def test_a_job_of_a_lost_node_goes_on_from_its_checkpoint_on_what_is_left(world: World) -> None:
    agents = await world.cluster_of(*REGIONS, "us-west")
    job_id = await _running(world, agents)
    used = [agent for agent in agents if agent.started]
    used[0].step(1, 2)
    used[0].checkpoint(2)
    await world.beats(agents)
    dead, left = used[0], [agent for agent in agents if agent is not used[0]]
    await _silence(world, left, world.services.settings.node_lost_after_s + 40)
    job = await world.job(job_id)
    assert (job.state, job.stop_cause) == ("queued", "node-lost")
    assert await _state(world, dead) == "lost"
    assert await world.held() == (0, 0, 0)
    world.clock.advance(10)
    await world.beats(left)
    assert await world.plan() is Outcome.APPLIED
    await world.beats(left)
    launched = [agent.known[key] for agent in left for key in agent.alive()]
    assert len(launched) == 3
    assert {process.env["BACE_RESUME_STEP"] for process in launched} == {"2"}

    # The dead node comes back with a process of the old generation still in its book: it is told to stop it.
    reply = await dead.beat()
    assert reply.desired == []
    assert not dead.alive()
    assert await _state(world, dead) == "ready"


async def test_a_job_whose_nodes_do_not_suffice_waits_for_the_lost_one(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    job_id = await _running(world, agents)
    agents[0].step(1, 2)
    agents[0].checkpoint(1)
    await world.beats(agents)
    await _silence(world, agents[1:], world.services.settings.node_lost_after_s + 60)
    assert await world.plan() is Outcome.APPLIED
    job = await world.job(job_id)
    assert job.state == "queued", "what does not fit on what is left is not refused for good"
    assert "WaitingForNode" in [reason["code"] for reason in job.reasons]
    agents[0].crash()
    await agents[0].join()
    await world.beats(agents)
    assert await world.plan() is Outcome.APPLIED
    assert (await world.job(job_id)).state == "starting"
    await world.beats(agents)
    assert all(len(agent.alive()) == 1 for agent in agents)


async def test_a_job_waits_for_the_machine_that_has_its_checkpoint(world: World) -> None:
    home, other = (
        FakeAgent(world, "eu-north", slots=3),
        FakeAgent(world, "us-east", slots=3, address="10.9.9.9"),
    )
    await home.join()
    job_id = await _running(world, [home])
    home.step(1)
    home.checkpoint(1)
    await home.beat()
    await other.join()
    await _silence(world, [other], world.services.settings.node_lost_after_s + 60)
    job = await world.job(job_id)
    assert (job.state, job.checkpoint_regions) == ("queued", ["eu-north"])
    await world.plan()
    job = await world.job(job_id)
    assert job.state == "queued"
    assert job.reasons[0]["code"] == "WaitingForNode"
    assert "eu-north" in job.reasons[0]["detail"]
    home.crash()
    await home.beat()
    assert await world.plan() is Outcome.APPLIED
    await home.beat()
    assert home.known[home.alive()[0]].env["BACE_RESUME_STEP"] == "1"


async def test_a_new_leader_gives_every_node_a_full_grace(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    job_id = await _running(world, agents)
    world.clock.advance(10_000)  # nobody led meanwhile, and heartbeats could not be heard
    await world.lead("another")
    assert await world.liveness.sweep() == 0
    await _silence(world, [], world.services.settings.node_lost_after_s - 40)
    assert (await world.job(job_id)).state == "running"
    await world.beats(agents)
    await _silence(world, agents, 400)
    assert (await world.job(job_id)).state == "running"


async def test_a_server_that_was_paused_does_not_judge_by_its_own_absence(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    job_id = await _running(world, agents)
    await _silence(world, agents, 400)
    world.clock.advance(10_000)
    assert await world.liveness.sweep() == 0
    await world.beats(agents)
    assert (await world.job(job_id)).state == "running"


async def test_a_cordoned_node_comes_back_cordoned(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    job_id = await _running(world, agents)
    node = await world.run(lambda session: cluster.node(session, agents[0].node_id))
    assert node is not None
    moment = Moment(world.clock.now(), ADMIN.token_id)
    await world.run(lambda session: move_node(session, node, NodeState.CORDONED, moment))
    await _silence(world, agents[1:], world.services.settings.node_lost_after_s + 60)
    assert (await world.job(job_id)).state == "queued"
    await agents[0].beat()
    assert await _state(world, agents[0]) == "cordoned"


async def test_a_process_that_its_agent_forgot_has_ended(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    job_id = await _running(world, agents)
    agents[0].running.clear()
    for _ in range(3):
        await world.beats(agents)
    job = await world.job(job_id)
    assert (job.state, job.stop_cause) == ("queued", "forgotten-by-agent")


async def test_jobs_that_could_not_run_are_looked_at_again_when_the_cluster_grows(world: World) -> None:
    agents = await world.cluster_of("eu-north")
    job_id = await world.submit()
    await world.plan()
    job = await world.job(job_id)
    assert job.state == "rejected"
    assert job.reasons
    more = await world.cluster_of("eu-west", "us-east")
    await world.link("eu-north", "eu-west")
    await world.link("eu-north", "us-east")
    assert await world.plan() is Outcome.APPLIED
    await world.beats([*agents, *more])
    job = await world.job(job_id)
    assert (job.state, job.finished_at_s) == ("starting", None)
