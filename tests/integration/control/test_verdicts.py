"""What a plan says to jobs that it does not start: refused for good only where no node that is missing would help."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from scheduler.plan import Hold, Reject
from scheduler.reasons import Reason, ReasonCode
from service.control import verdicts
from service.db.repositories import cluster
from service.lifecycle import Moment, NodeState, move_node
from tests.control_world import World

NEVER = Reason(ReasonCode.NEVER_FITS, "needs 9 stages, the cluster has 2")
FULL = Reason(ReasonCode.GPUS_EXHAUSTED, "no GPU is free", region="eu-north", needed=3, available=0)


async def _store(world: World, *decisions: Hold | Reject, never: Collection[str] = ()) -> None:
    holds = [decision for decision in decisions if isinstance(decision, Hold)]
    rejects = [decision for decision in decisions if isinstance(decision, Reject)]
    moment = Moment(world.clock.now(), "test")
    await world.run(lambda session: verdicts.store(session, holds, rejects, never, moment))


async def test_a_whole_cluster_refuses_for_good(world: World) -> None:
    await world.cluster_of("eu-north", "eu-west")
    job_id = await world.submit()
    await _store(world, Reject(job_id, (NEVER,)), never={job_id})
    job = await world.job(job_id)
    assert (job.state, job.reasons[0]["code"]) == ("rejected", "NeverFits")


@pytest.mark.parametrize("state", [NodeState.LOST, NodeState.CORDONED])
async def test_while_a_node_is_missing_only_what_no_node_would_help_is_refused(
    world: World, state: NodeState
) -> None:
    agents = await world.cluster_of("eu-north", "eu-west", slots=2)
    patient = await world.submit(parallelism={"stages": 4})
    endless = await world.submit(parallelism={"stages": 5})
    node = await world.run(lambda session: cluster.node(session, agents[0].node_id))
    assert node is not None
    moment = Moment(world.clock.now(), "test")
    await world.run(lambda session: move_node(session, node, state, moment))
    await world.plan()

    job = await world.job(patient)
    assert job.state == "queued"
    assert [reason["code"] for reason in job.reasons] == ["WaitingForNode", "NeverFits"]
    assert f"node-eu-north ({state.value})" in job.reasons[0]["detail"]
    refused = await world.job(endless)
    assert (refused.state, refused.reasons[0]["code"]) == ("rejected", "NeverFits")


async def test_a_job_that_waits_as_before_is_left_alone(world: World) -> None:
    await world.cluster_of("eu-north")
    job_id = await world.submit()
    await _store(world, Hold(job_id, 1, (FULL,)))
    job, events = await world.job(job_id), await world.events()
    assert (job.queue_position, job.reasons[0]["needed"], job.version) == (1, 3, 1)
    await _store(world, Hold(job_id, 1, (FULL,)))
    assert await world.events() == events
    await _store(world, Hold(job_id, 2, (FULL,)))
    assert (await world.job(job_id)).queue_position == 2
    assert await world.events() == events, "its reasons are the same: nothing to tell"


async def test_a_job_that_no_longer_waits_is_passed_over(world: World) -> None:
    await world.cluster_of("eu-north")
    job_id = await world.submit()
    await world.cancel(job_id)
    await _store(world, Hold(job_id, 1, (FULL,)), Reject(job_id, (NEVER,)), never={job_id})
    assert (await world.job(job_id)).state == "cancelled"
