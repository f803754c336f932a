"""The what-if of schedules over REST: what a job would come to under each, seen by who may see the job."""

from __future__ import annotations

import pytest

from scheduler.pipeline.plan.catalogue import SCHEDULES
from tests.api_server import Server
from tests.control_world import job_document

CHAIN = "eu-north:1,eu-west:1"


@pytest.fixture
async def three(server: Server) -> Server:
    """Three regions of two slots each, with links between all of them."""
    await server.world.cluster_of("eu-north", "eu-west", "us-east", slots=2)
    return server


async def test_every_schedule_is_told_on_the_named_chain_and_nothing_is_stored(three: Server) -> None:
    before = three.rows()
    async with three.client("nlp") as nlp:
        answer = await nlp.post("/v1/schedules", params={"placement": CHAIN}, json=job_document())
    assert answer.status_code == 200
    made = answer.json()
    assert (made["chain"], made["stages"], made["picture"]) == ("eu-north:1>eu-west:1", 2, None)
    assert [each["schedule"] for each in made["schedules"]] == list(SCHEDULES)
    by_name = {each["schedule"]: each for each in made["schedules"]}
    assert by_name["1f1b"]["runs"] == "asked"
    assert by_name["auto"]["iteration_s"] <= by_name["1f1b"]["iteration_s"]
    assert by_name["1f1b"]["fits"] is True
    assert len(by_name["1f1b"]["peak_bytes"]) == len(made["ranks"]) == 2
    assert by_name["1f1b"]["usd_per_1000_steps"]["total"] >= 0
    assert {row["available"] for row in made["schedules"]} <= {True, False}
    assert all(row["note"] for row in made["schedules"] if not row["available"])
    after = three.rows()
    assert {name: after[name] - count for name, count in before.items() if after[name] != count} in (
        {},
        {"audit": 1},
    )


async def test_without_a_chain_it_is_the_policys_and_the_plan_of_the_same_job_agrees(three: Server) -> None:
    async with three.client("nlp") as nlp:
        made = (await nlp.post("/v1/schedules", json=job_document())).json()
        plan = (await nlp.post("/v1/plans", json=job_document())).json()
    assert made["why"].endswith(plan["why"])
    asked = next(each for each in made["schedules"] if each["schedule"] == made["asked"])
    assert asked["iteration_s"] == pytest.approx(plan["iteration_s"], rel=1e-12)
    assert asked["bubble_fraction"] == pytest.approx(plan["bubble_fraction"], rel=1e-9)
    steps = job_document()["training"]["steps"]
    expected = plan["cost_usd"]["total"] * 1000 / steps
    assert asked["usd_per_1000_steps"]["total"] == pytest.approx(expected, rel=1e-6)


async def test_the_built_in_workers_job_is_advised_on_its_updates_and_a_command_is_not(three: Server) -> None:
    command = job_document(run={"command": ["train"]}, elasticity="none")
    async with three.client("nlp") as nlp:
        advice = (await nlp.post("/v1/schedules", json=job_document())).json()["advice"]
        unknown = (await nlp.post("/v1/schedules", json=command)).json()["advice"]
    assert (advice["stages"], advice["micro_batches"], advice["per_update"]) == (3, 16, 4)
    totals = {bound["training"]: bound["total"] for bound in advice["bounds"]}
    assert totals.keys() == {"synchronous", "paci", "periodic-averaging"}
    assert min(totals, key=totals.__getitem__) == advice["training"]
    for bound in advice["bounds"]:
        assert bound["total"] == pytest.approx(bound["distance"] + bound["noise"] + bound["staleness"])
        assert bound["reason"].startswith(bound["training"])
    assert "Nothing acts on it" in advice["notes"][-1]
    assert unknown is None


async def test_a_picture_comes_with_it_where_it_is_asked_for(three: Server) -> None:
    params = {"placement": CHAIN, "picture": "zb-h1"}
    async with three.client("nlp") as nlp:
        made = (await nlp.post("/v1/schedules", params=params, json=job_document())).json()
    assert made["picture"]["schedule"] == "zb-h1"
    assert made["picture"]["svg"].startswith('<svg xmlns="http://www.w3.org/2000/svg"')


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"placement": "mars:2"}, "placement: 'mars' is not valid: expected a region that there is"),
        ({"placement": "eu-north"}, "like us-east-1:3,eu-west-1:2"),
        ({"placement": CHAIN, "picture": "zigzag"}, "picture: 'zigzag' is not valid: expected one of gpipe"),
    ],
)
async def test_what_cannot_be_meant_is_refused_with_what_would_be_right(
    three: Server, params: dict[str, str], why: str
) -> None:
    async with three.client("nlp") as nlp:
        answer = await nlp.post("/v1/schedules", params=params, json=job_document())
        bad = await nlp.post("/v1/schedules", json={**job_document(), "stagse": 3})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert why in answer.json()["detail"]
    assert (bad.status_code, bad.json()["errors"][0]["pointer"]) == (422, "/stagse")


async def test_a_job_that_fits_nowhere_has_no_schedules_but_reasons(server: Server) -> None:
    async with server.client("nlp") as nlp:
        answer = await nlp.post("/v1/schedules", json=job_document())
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert answer.json()["reasons"]


async def test_a_job_is_compared_where_it_stands_and_others_do_not_see_it(three: Server) -> None:
    async with three.client("nlp") as nlp:
        job_id = (await nlp.post("/v1/jobs", json=job_document())).json()["job_id"]
        waiting = (await nlp.get(f"/v1/jobs/{job_id}/schedules")).json()
        await three.world.plan()
        job = (await nlp.get(f"/v1/jobs/{job_id}")).json()
        made = (await nlp.get(f"/v1/jobs/{job_id}/schedules", params={"picture": "auto"})).json()
    assert waiting["why"].startswith("bace's choice")
    assert made["why"] == "where it stands, or stood last"
    chain = ">".join(f"{part['region']}:{part['stages']}" for part in job["chain"])
    assert made["chain"] == chain == waiting["chain"]
    assert made["cuts"] == job["placement"]["cuts"]
    asked = next(each for each in made["schedules"] if each["schedule"] == made["asked"])
    assert asked["iteration_s"] == pytest.approx(job["predicted_iteration_s"], rel=1e-12)
    assert made["picture"]["schedule"] == "auto"
    async with three.client("vision") as vision:
        assert (await vision.get(f"/v1/jobs/{job_id}/schedules")).status_code == 404
    async with three.client("viewer") as viewer:
        assert (await viewer.get(f"/v1/jobs/{job_id}/schedules")).status_code == 200
        refused = await viewer.post("/v1/schedules", json=job_document())
    assert refused.status_code == 403
