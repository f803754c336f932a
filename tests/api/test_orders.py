"""Jobs in an order over REST: placed and told as they asked, or refused by the field that stands against it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from agents.protocol import read_plan
from tests.api_server import Server
from tests.control_world import job_document


def ordered(schedule: str, **changes: Any) -> dict[str, Any]:
    """Three stages of six layers."""
    training = {"schedule": schedule, "micro_batches": 6, **changes.pop("training", {})}
    return job_document(training=training, **changes)


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"run": {"command": ["train"]}, "elasticity": "none"}, "/training/schedule"),
        ({"run": {"builtin": "gpt", "updates": {"rule": "paci", "every": 2}}}, "/run/updates"),
        ({"run": {"builtin": "gpt", "ready_first": True}}, "/run/ready_first"),
        ({"parallelism": {"codec": {"mapl": {"rank": 8}}}}, "/parallelism/codec"),
        ({"parallelism": {"stages": 2}}, "/parallelism/stages"),
        ({"training": {"recompute": "full"}}, "/training/recompute"),
        ({"training": {"micro_batches": 5}}, "/training/micro_batches"),
        ({"training": {"micro_batches": 2048}}, "/training/micro_batches"),
    ],
)
async def test_what_cannot_go_together_is_refused_by_its_field(
    server: Server, nlp: httpx.AsyncClient, changes: dict[str, Any], pointer: str
) -> None:
    for path in ("/v1/jobs", "/v1/plans", "/v1/schedules"):
        answer = await nlp.post(path, json=ordered("zb-v", **changes))
        assert answer.status_code == 422, path
        assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert server.rows()["jobs"] == 0


@pytest.mark.parametrize(
    ("schedule", "regions", "ranks"),
    [
        ("zb-v", ("eu-north", "eu-west", "us-east"), [0, 1, 2, 2, 1, 0]),
        ("v-half", ("eu-north", "eu-west", "us-east"), [0, 1, 2, 2, 1, 0]),
        ("generated", ("eu-north", "eu-west", "us-east"), [0, 1, 2]),
        ("interleaved", ("eu-north", "eu-west"), [0, 1, 2, 0, 1, 2]),
    ],
)
async def test_a_job_is_placed_and_told_in_the_order_that_it_asked_for(
    server: Server, nlp: httpx.AsyncClient, schedule: str, regions: tuple[str, ...], ranks: list[int]
) -> None:
    await server.world.cluster_of(*regions, slots=4 - len(regions))
    dry = (await nlp.post("/v1/plans", json=ordered(schedule))).json()
    job_id = (await nlp.post("/v1/jobs", json=ordered(schedule))).json()["job_id"]
    await server.world.plan()
    job = (await nlp.get(f"/v1/jobs/{job_id}")).json()
    assert (job["state"], job["placement"]["schedule"]) == ("starting", schedule)
    assert len(job["placement"]["order"]) == 3
    assert len(job["placement"]["window"]) == len(ranks)
    assert {part["region"] for part in job["chain"]} == set(regions)
    assert schedule in job["why"] or "Its order is generated" in job["why"]
    assert job["predicted_iteration_s"] == pytest.approx(dry["iteration_s"], rel=1e-9)
    plans = [read_plan(each.launch["env"]["BACE_PLAN"]) for each in await server.world.processes(job_id)]
    assert len(plans) == 3
    for plan in plans:
        assert plan.order is not None
        assert plan.order.stage_ranks == ranks


async def test_a_loop_does_not_stand_in_three_regions(server: Server, nlp: httpx.AsyncClient) -> None:
    await server.world.cluster_of("eu-north", "eu-west", "us-east", slots=1)
    job_id = (await nlp.post("/v1/jobs", json=ordered("interleaved"))).json()["job_id"]
    await server.world.plan()
    job = (await nlp.get(f"/v1/jobs/{job_id}")).json()
    assert job["state"] in ("queued", "rejected")
    assert job["reasons"]
