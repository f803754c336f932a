"""Jobs over REST: acknowledged means stored, the same key means the same job, and a job tells its whole life."""

from __future__ import annotations

import json

import httpx
import pytest

from scheduler.units import format_time
from tests.api_server import Server
from tests.control_world import FakeAgent, job_document

REGIONS = ("eu-north", "eu-west", "us-east")


async def _running(
    server: Server, client: httpx.AsyncClient, **changes: object
) -> tuple[str, list[FakeAgent]]:
    """A job that runs on three regions with one slot each; its id and the agents."""
    agents = await server.world.cluster_of(*REGIONS)
    job_id = (await client.post("/v1/jobs", json=job_document(**changes))).json()["job_id"]
    await server.world.plan()
    await server.world.beats(agents)
    for agent in agents:
        agent.ready()
    await server.world.beats(agents)
    return job_id, agents


async def test_a_submission_is_stored_before_it_is_acknowledged(
    server: Server, nlp: httpx.AsyncClient
) -> None:
    answer = await nlp.post("/v1/jobs", json=job_document())
    assert answer.status_code == 201
    job = answer.json()
    assert answer.headers["Location"] == f"/v1/jobs/{job['job_id']}"
    assert answer.headers["ETag"] == '"1"'
    assert (job["state"], job["project"], job["declared_steps"]) == ("queued", "nlp", 4)
    assert job["spec"]["elasticity"] == "resize", "the server completes the spec"
    stored = await server.world.job(job["job_id"])
    assert stored.spec == job["spec"]
    [event] = (await nlp.get(f"/v1/jobs/{job['job_id']}/events")).json()["items"]
    assert (event["kind"], event["data"]["to"]) == ("job.queued", "queued")


async def test_limits_that_the_policy_does_not_plan_by_are_named_in_the_first_event(
    server: Server, nlp: httpx.AsyncClient
) -> None:
    assert server.world.services.settings.policy == "bace"
    limits = {"deadline": "2100-01-01T00:00:00Z", "budget_usd": 5, "max_wait": "6h"}
    for given, named in (({}, None), (limits, sorted(limits))):
        job = (await nlp.post("/v1/jobs", json=job_document(**given))).json()
        [event] = (await nlp.get(f"/v1/jobs/{job['job_id']}/events")).json()["items"]
        told = event["data"].get("not_planned_by")
        assert (told if told is None else sorted(told)) == named
        planned = (await nlp.post("/v1/plans", json=job_document(**given))).json()
        assert sorted(planned["not_planned_by"]) == (named or [])


async def test_a_deadline_that_has_passed_is_refused_and_nothing_is_stored(
    server: Server, nlp: httpx.AsyncClient
) -> None:
    now_s = server.world.clock.now()
    for path in ("/v1/jobs", "/v1/plans"):
        late = await nlp.post(path, json=job_document(deadline=now_s))
        assert late.status_code == 422
        [error] = late.json()["errors"]
        assert error["pointer"] == "/deadline"
        assert format_time(now_s) in error["detail"]
    assert server.rows()["jobs"] == 0


async def test_a_key_gives_its_job_also_when_the_deadline_has_passed_meanwhile(
    server: Server, nlp: httpx.AsyncClient
) -> None:
    headers = {"Idempotency-Key": "build-71"}
    document = job_document(deadline=server.world.clock.now() + 60)
    first = await nlp.post("/v1/jobs", json=document, headers=headers)
    server.world.clock.advance(120)
    again = await nlp.post("/v1/jobs", json=document, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json()["job_id"] == first.json()["job_id"]


@pytest.mark.parametrize("grace", ["2h", "3000s", "121s"])
async def test_the_one_range_of_the_grace_is_told_whatever_was_asked(
    nlp: httpx.AsyncClient, grace: str
) -> None:
    refused = await nlp.post("/v1/jobs", json=job_document(stop={"grace": grace}))
    assert refused.status_code == 422
    [error] = refused.json()["errors"]
    assert (error["pointer"], error["detail"]) == ("/stop/grace", "expected between 0 and 120 seconds")


async def test_the_same_key_and_body_give_the_same_job(server: Server, nlp: httpx.AsyncClient) -> None:
    document = job_document()
    headers = {"Idempotency-Key": "build-71"}
    first = await nlp.post("/v1/jobs", json=document, headers=headers)
    shuffled = dict(reversed(document.items()))
    again = await nlp.post("/v1/jobs", json=shuffled, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json()["job_id"] == first.json()["job_id"]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert server.rows()["jobs"] == 1


async def test_the_same_key_with_another_body_is_refused(server: Server, nlp: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "build-71"}
    await nlp.post("/v1/jobs", json=job_document(), headers=headers)
    other = await nlp.post("/v1/jobs", json=job_document(name="other"), headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert server.rows()["jobs"] == 1


async def test_a_key_belongs_to_its_project(server: Server, nlp: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "build-71"}
    await nlp.post("/v1/jobs", json=job_document(), headers=headers)
    async with server.client("vision") as vision:
        other = await vision.post("/v1/jobs", json=job_document(project="vision"), headers=headers)
    assert other.status_code == 201
    assert "Idempotency-Replayed" not in other.headers
    assert server.rows()["jobs"] == 2


async def test_pages_give_every_job_once_and_the_newest_first(server: Server, nlp: httpx.AsyncClient) -> None:
    submitted = []
    for number in range(7):
        server.world.clock.advance(number % 2)  # some in the same moment
        submitted.append(
            (await nlp.post("/v1/jobs", json=job_document(name=f"job-{number}"))).json()["job_id"]
        )
    seen: list[str] = []
    cursor = None
    while True:
        page = (
            await nlp.get("/v1/jobs", params={"limit": 3, **({"cursor": cursor} if cursor else {})})
        ).json()
        seen += [job["job_id"] for job in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == submitted[::-1]


async def test_lists_are_filtered_by_state_and_project(server: Server, admin: httpx.AsyncClient) -> None:
    for project in ("nlp", "nlp", "vision"):
        await admin.post("/v1/jobs", json=job_document(project=project))
    newest = (await admin.get("/v1/jobs", params={"project": "nlp"})).json()["items"][0]["job_id"]
    await admin.post(f"/v1/jobs/{newest}/cancel")

    async def count(**params: str) -> int:
        return len((await admin.get("/v1/jobs", params=params)).json()["items"])

    assert (await count(), await count(project="nlp"), await count(state="cancelled")) == (3, 2, 1)
    async with server.client("nlp") as nlp:
        assert len((await nlp.get("/v1/jobs")).json()["items"]) == 2
        assert (await nlp.get("/v1/jobs", params={"project": "vision"})).json()["items"] == []


async def test_a_unique_prefix_is_enough_and_an_ambiguous_one_names_its_jobs(nlp: httpx.AsyncClient) -> None:
    ids: list[str] = []
    while len({job_id[:-1] for job_id in ids}) < 2:  # until the last one differs before its last character
        ids.append((await nlp.post("/v1/jobs", json=job_document())).json()["job_id"])
    assert (await nlp.get(f"/v1/jobs/{ids[0]}")).json()["job_id"] == ids[0]
    assert (await nlp.get(f"/v1/jobs/{ids[-1][:-1]}")).json()["job_id"] == ids[-1]
    ambiguous = await nlp.get(f"/v1/jobs/{ids[0][: len('job-') + 4]}")
    assert (ambiguous.status_code, ambiguous.json()["code"]) == (409, "ambiguous_id")
    assert ambiguous.json()["candidates"] == ids[:5]
    assert (await nlp.get("/v1/jobs/nothing-like-it")).status_code == 404


@pytest.mark.parametrize("beginning", ["j", "job-", "job-000"])
async def test_what_every_id_begins_with_selects_not_even_an_only_job(
    nlp: httpx.AsyncClient, beginning: str
) -> None:
    await nlp.post("/v1/jobs", json=job_document())
    refused = await nlp.get(f"/v1/jobs/{beginning}")
    assert refused.status_code == 404
    assert "at least 4 characters behind job-" in refused.json()["detail"]


async def test_cancelling_is_idempotent_and_respects_if_match(nlp: httpx.AsyncClient) -> None:
    job = (await nlp.post("/v1/jobs", json=job_document())).json()
    path = f"/v1/jobs/{job['job_id']}/cancel"
    stale = await nlp.post(path, headers={"If-Match": '"7"'})
    assert (stale.status_code, stale.json()["code"]) == (412, "version_mismatch")
    first = await nlp.post(path, headers={"If-Match": f'"{job["version"]}"'})
    again = await nlp.post(path)
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json()["state"] == again.json()["state"] == "cancelled"
    assert first.json()["version"] == again.json()["version"]


async def test_a_job_tells_its_chain_its_series_and_its_bill(server: Server, nlp: httpx.AsyncClient) -> None:
    agents = await server.world.cluster_of(*REGIONS)
    for region in REGIONS:
        await server.world.price("electricity", region, [(-86_400.0, 0.25)])
    job_id = (await nlp.post("/v1/jobs", json=job_document())).json()["job_id"]
    server.world.clock.advance(3.0)
    await server.world.plan()
    await server.world.beats(agents)
    for agent in agents:
        agent.ready()
    await server.world.beats(agents)
    last = next(agent for agent in agents if agent.known[agent.alive()[0]].stage == 2)
    server.world.clock.advance(3600.0)
    last.step(1, 2, 3, grad_norm=0.5)
    last.step(4, grad_norm=0.25)
    last.log(0, "step 1 loss 5.0", "step 2 loss 2.5")
    for agent in agents:
        agent.exit()
    await server.world.beats(agents)

    job = (await nlp.get(f"/v1/jobs/{job_id}")).json()
    assert job["state"] == "succeeded"
    assert sorted(part["region"] for part in job["chain"]) == sorted(REGIONS)
    assert sum(part["stages"] for part in job["chain"]) == 3
    assert (job["first_loss"], job["last_loss"], job["reported_steps"]) == (5.0, 1.25, 4)
    assert job["last_grad_norm"] == 0.25
    assert job["measured_iteration_s"] == 1.0
    training, model = job["spec"]["training"], job["spec"]["model"]
    assert job["tokens_per_s"] == training["micro_batch"] * training["micro_batches"] * model["seq_len"]
    assert job["mfu"] is None, "the peak of a CPU slot is not known"
    assert job["predicted_iteration_s"] > 0
    assert job["queueing_s"] == pytest.approx(3.0, abs=0.1)
    assert job["jct_s"] == pytest.approx(3603.0, abs=1.0)
    kwh, usd = job["energy_kwh"], job["cost_usd"]
    assert set(kwh["by_region"]) == set(REGIONS)
    assert kwh["total"] == pytest.approx(sum(kwh["by_region"].values()))
    assert usd["electricity"] == pytest.approx(0.25 * kwh["total"])
    assert usd["total"] == pytest.approx(sum(region["total"] for region in usd["by_region"].values()))
    assert [allocation["generation"] for allocation in job["allocations"]] == [1]

    steps = (await nlp.get(f"/v1/jobs/{job_id}/steps", params={"after": 2})).json()
    assert [(step["step"], step["loss"]) for step in steps["items"]] == [(3, 5.0 / 3), (4, 1.25)]
    lines = (await nlp.get(f"/v1/jobs/{job_id}/logs", params={"stage": 2})).json()["items"]
    assert [line["text"] for line in lines] == ["step 1 loss 5.0", "step 2 loss 2.5"]
    assert (await nlp.get(f"/v1/jobs/{job_id}/logs", params={"stage": 0})).json()["items"] == []
    tail = (await nlp.get(f"/v1/jobs/{job_id}/logs", params={"tail": 1})).json()["items"]
    assert [line["text"] for line in tail] == ["step 2 loss 2.5"]
    gantt = (await nlp.get("/v1/allocations")).json()["items"]
    assert [(entry["job_name"], entry["gpus"]) for entry in gantt] == [("tiny", 3)]


async def test_a_job_tells_how_late_its_weights_are_and_what_was_taken_back(
    server: Server, nlp: httpx.AsyncClient
) -> None:
    job_id, agents = await _running(server, nlp)
    path = f"/v1/jobs/{job_id}"
    fields = ("drift", "drift_bound", "rolled_back")
    before = (await nlp.get(path)).json()
    for step, (drift, rolled_back) in enumerate([(1, 0), (3, 2), (2, 2)], 1):
        agents[0].step(step, drift=drift, drift_bound=4, rolled_back=rolled_back)
    agents[0].step(4)
    await server.world.beats(agents)

    job, steps = (await nlp.get(path)).json(), (await nlp.get(f"{path}/steps")).json()["items"]

    assert [before[name] for name in fields] == [None] * 3
    told = [tuple(step[name] for name in fields) for step in steps]
    assert told == [(1, 4, 0), (3, 4, 2), (2, 4, 2), (None, None, None)]
    assert [job[name] for name in fields] == [3, 4, 2], "the largest drift, and the last of what has a total"


async def test_following_a_log_ends_with_the_job_and_resumes_by_number(
    server: Server, nlp: httpx.AsyncClient
) -> None:
    job_id, agents = await _running(server, nlp)
    agents[0].log(0, "one", "two", "three")
    for agent in agents:
        agent.exit(1)
    await server.world.beats(agents)
    await nlp.post(f"/v1/jobs/{job_id}/cancel")

    def lines(text: str) -> list[str]:
        data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith('data: {"seq"')]
        return [json.loads(line)["text"] for line in data]

    whole = await nlp.get(f"/v1/jobs/{job_id}/logs", params={"follow": "true"})
    assert whole.headers["Content-Type"].startswith("text/event-stream")
    assert lines(whole.text) == ["one", "two", "three"]
    assert "event: end" in whole.text
    rest = await nlp.get(f"/v1/jobs/{job_id}/logs", params={"follow": "true"}, headers={"Last-Event-ID": "2"})
    assert lines(rest.text) == ["three"]


async def test_a_waiting_job_is_explained_with_true_reasons(server: Server, nlp: httpx.AsyncClient) -> None:
    await server.world.cluster_of("eu-north", "eu-west")
    job_id = (await nlp.post("/v1/jobs", json=job_document())).json()["job_id"]
    explained = (await nlp.get(f"/v1/jobs/{job_id}/explain")).json()
    assert explained["state"] == "queued"
    assert explained["reasons"], "a waiting job always has a reason"
    assert {verdict["region"] for verdict in explained["regions"]} == {"eu-north", "eu-west"}


async def test_an_explanation_names_no_job_of_another_project(server: Server, nlp: httpx.AsyncClient) -> None:
    async with server.client("vision") as vision:
        blocking, _ = await _running(server, vision, project="vision")
    job_id = (await nlp.post("/v1/jobs", json=job_document())).json()["job_id"]
    explained = await nlp.get(f"/v1/jobs/{job_id}/explain")
    assert explained.json()["reasons"]
    assert blocking not in explained.text
    async with server.client() as admin:
        assert (await admin.get(f"/v1/jobs/{job_id}/explain")).json()["blocking_jobs"] == [blocking]
