"""A job that really trains is given another number of stages by a plan, and goes on where it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.world import World, lived_in, small_job

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e"), pytest.mark.timeout(240)]

STEPS = 100
OFTEN = {
    "BACE_POLICY": "widening",
    "BACE_REPLAN_INTERVAL_S": "0.5",
    "BACE_REPLAN_DEBOUNCE_S": "0.2",
    "BACE_PLAN_INTERVAL_S": "0.5",
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield from lived_in(World(tmp_path, OFTEN, server="tests.e2e.widening_server"))


def submit(world: World, name: str, **changes: object) -> str:
    document = small_job(name, parallelism={"stages": "2..3"}, **changes)
    document["training"]["steps"] = STEPS
    return str(world.post("/v1/jobs", document)["job_id"])


def test_a_job_moved_from_two_stages_to_three_has_the_losses_of_one_that_was_left_alone(
    world: World,
) -> None:
    world.start_agent("london-1", "eu-west-2", 4)
    world.start_agent("paris-1", "eu-west-3", 1)
    moved, left_alone = submit(world, "moved"), submit(world, "left-alone", elasticity="none")
    for job_id in (moved, left_alone):
        world.until("it has succeeded", lambda job_id=job_id: world.job(job_id)["state"] == "succeeded", 150)

    job = world.job(moved)
    first, second = job["allocations"]
    assert [sum(part["stages"] for part in each["chain"]) for each in (first, second)] == [2, 3]
    assert (first["stop_cause"], first["stop_why"]) == (
        "moved",
        "moved to eu-west-2:2>eu-west-3:1: it is going",
    )
    assert (job["moves"], job["preemptions"], job["retries"], job["promised"]) == (1, 0, 0, None)

    steps, alone = world.steps(moved), world.steps(left_alone)
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1)), "no gap, none twice"
    generations = [row["generation"] for row in steps]
    assert generations == sorted(generations)
    assert generations.index(2) + 1 == second["first_step"], "it went on right after its last step"
    assert [row["loss"] for row in steps] == pytest.approx([row["loss"] for row in alone], rel=1e-3)
