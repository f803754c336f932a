"""A command of the user's own trains under the service: it is stopped with a checkpoint, goes on, and is cancelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.world import World

JOBS = Path(__file__).parents[2] / "deploy" / "examples" / "jobs"

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e"), pytest.mark.timeout(240)]


def example_job() -> dict[str, Any]:
    """The shipped example, with its script where it lies here, and more steps than the test has time for."""
    document: dict[str, Any] = yaml.safe_load((JOBS / "plain_torch.yaml").read_text(encoding="utf-8"))
    document["run"]["command"][1] = str(JOBS / "plain_torch_train.py")
    document["training"]["steps"] = 100_000
    document["stop"]["grace"] = "4s"
    return document


def test_the_plain_torch_example_is_stopped_resumes_and_is_cancelled(world: World) -> None:
    world.start_agent("london-1", "eu-west-2", 2)
    job_id = world.post("/v1/jobs", example_job())["job_id"]
    world.until("it trains", lambda: world.job(job_id)["reported_steps"] >= 10, 90)

    world.post("/v1/nodes/london-1/drain", {})
    world.until("it has been stopped", lambda: world.job(job_id)["state"] == "queued", 60)
    stopped_at = world.job(job_id)["checkpoint_step"]
    assert stopped_at >= 10

    world.post("/v1/nodes/london-1/uncordon", {})
    world.until("it goes on", lambda: world.job(job_id)["reported_steps"] > stopped_at, 90)
    first_steps = {each["generation"]: each["first_step"] for each in world.job(job_id)["allocations"]}
    assert first_steps == {1: 1, 2: stopped_at + 1}

    world.post(f"/v1/jobs/{job_id}/cancel", {})
    world.until("it is cancelled", lambda: world.job(job_id)["state"] == "cancelled", 60)
    assert world.get("/v1/nodes")["items"][0]["used_gpus"] == 0
