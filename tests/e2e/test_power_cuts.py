"""What dies comes back: servers, agents and nodes are killed in mid-training, and the job still ends right."""

from __future__ import annotations

import pytest

from tests.e2e.world import World, small_job

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e"), pytest.mark.timeout(400)]

STEPS = 120
SERVER_STEPS = 300
"""Enough that the job still trains when a server on a busy machine is back."""

QUICK_TO_LOSE = {"BACE_LEASE_S": "4", "BACE_MAX_STOP_GRACE_S": "2", "BACE_NODE_LOST_AFTER_S": "11.5"}


def start_training(world: World, steps: int = STEPS) -> str:
    """Submit the job and wait until it is well under way."""
    document = small_job("power-cut", stop={"signal": "TERM", "grace": "2s"})
    document["training"]["steps"] = steps
    job_id = str(world.post("/v1/jobs", document)["job_id"])
    world.until("20 steps are reported", lambda: world.job(job_id)["reported_steps"] >= 20, 90)
    return job_id


def wait_for_success(world: World, job_id: str) -> None:
    world.until("the job has succeeded", lambda: world.job(job_id)["state"] == "succeeded", 180)


def assert_every_step_once(world: World, job_id: str, steps: int = STEPS) -> None:
    assert [row["step"] for row in world.steps(job_id)] == list(range(1, steps + 1))


def assert_generation(world: World, job_id: str, generation: int) -> None:
    """It was started so often, and no more; otherwise the moves of its life are shown."""
    moves = [
        each for each in world.get(f"/v1/jobs/{job_id}/events", limit=500)["items"] if "to" in each["data"]
    ]
    assert world.job(job_id)["generation"] == generation, moves


def test_a_killed_server_loses_nothing_and_training_goes_on(world: World) -> None:
    world.start_agent("london-1", "eu-west-2", 2)
    world.start_agent("paris-1", "eu-west-3", 2)
    job_id = start_training(world, SERVER_STEPS)
    waiting = world.post("/v1/jobs", small_job("accepted"))["job_id"]
    workers = world.workers("london-1") | world.workers("paris-1")

    world.kill("server")
    world.start_server()

    assert world.workers("london-1") | world.workers("paris-1") == workers
    assert world.job(waiting)["name"] == "accepted"
    wait_for_success(world, job_id)
    assert_every_step_once(world, job_id, SERVER_STEPS)
    assert_generation(world, job_id, 1)


def test_a_killed_agent_adopts_its_workers_when_it_is_back(world: World) -> None:
    world.start_agent("london-1", "eu-west-2", 2)
    world.start_agent("paris-1", "eu-west-3", 2)
    job_id = start_training(world)
    workers = world.workers("london-1")
    assert workers

    world.kill("london-1")
    assert world.workers("london-1") == workers
    world.start_agent("london-1", "eu-west-2", 2)

    assert world.workers("london-1") == workers
    wait_for_success(world, job_id)
    assert_every_step_once(world, job_id)
    assert_generation(world, job_id, 1)


@pytest.mark.parametrize("world", [QUICK_TO_LOSE], indirect=True)
def test_a_lost_node_sends_the_job_to_what_is_left(world: World) -> None:
    for node, region in (
        ("london-1", "eu-west-2"),
        ("paris-1", "eu-west-3"),
        ("frankfurt-1", "eu-central-1"),
    ):
        world.start_agent(node, region, 2)
    job_id = start_training(world)
    node_of = {"eu-west-2": "london-1", "eu-west-3": "paris-1", "eu-central-1": "frankfurt-1"}
    region = world.job(job_id)["chain"][0]["region"]

    world.kill(node_of[region], with_workers=True)

    world.until("a second generation runs", lambda: world.job(job_id)["generation"] == 2, 60)
    job = world.job(job_id)
    assert region not in {part["region"] for part in job["chain"]}
    # It goes on after its last checkpoint, not from the beginning.
    second = next(each for each in job["allocations"] if each["generation"] == 2)
    assert second["first_step"] > 10
    assert (second["first_step"] - 1) % 10 == 0
    wait_for_success(world, job_id)
    assert_every_step_once(world, job_id)


@pytest.mark.parametrize("world", [QUICK_TO_LOSE], indirect=True)
def test_with_nothing_left_the_job_waits_and_says_why_until_the_node_is_back(world: World) -> None:
    world.start_agent("london-1", "eu-west-2", 2)
    world.start_agent("paris-1", "eu-west-3", 2)
    job_id = start_training(world)

    world.kill("paris-1", with_workers=True)
    world.until("the job waits", lambda: world.job(job_id)["state"] == "queued", 60)
    world.until("with a reason", lambda: told_to_lack_nodes(world, job_id), 30)
    world.start_agent("paris-1", "eu-west-3", 2)

    wait_for_success(world, job_id)
    assert_generation(world, job_id, 2)
    assert_every_step_once(world, job_id)


def told_to_lack_nodes(world: World, job_id: str) -> bool:
    """The one true reason: it has run, and what is here now could not hold it even if all were free."""
    return any(
        reason["code"] == "WaitingForNode" and reason["detail"] for reason in world.job(job_id)["reasons"]
    )
