"""What plans do to running jobs, told over REST; and the shares of projects."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

from scheduler.plan import Preempt
from service.control.scheduling import Outcome
from service.db.engine import make_engine
from service.tokens import create
from tests.api_server import TOKENS, Server
from tests.control_script import WIDE, Scripted, move_to, runs, start_at, trains_to
from tests.control_world import ADMIN, World, job_document

WHY = "a shorter job needs its place"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    scripted = Scripted()
    scripted.register(monkeypatch)
    return scripted


@pytest.fixture
async def played(app: FastAPI, script: Scripted) -> AsyncIterator[Server]:
    """A server whose policy is the test's, and is asked at every round."""
    always = {"replan_debounce_s": 1e-4, "replan_interval_s": 1e-4}
    world = World(make_engine("sqlite://"), policy=script.name, **always)
    await world.start()
    tokens = {name: (await create(world.services, ADMIN, request)).text for name, request in TOKENS.items()}
    server = Server(app, world, tokens)
    server.stand()
    yield server
    world.engine.dispose()


async def test_a_job_tells_where_it_goes_on_and_afterwards_why_it_was_moved(
    played: Server, script: Scripted
) -> None:
    world = played.world
    agents = await world.cluster_of("eu-north", "eu-west", slots=3)
    job_id = await runs(world, script, agents, {"eu-north": 2})
    await trains_to(world, agents, job_id, 1, 5)
    script.once(move_to(job_id, {"eu-north": 3}, why="three stages are faster"))
    assert await world.plan() is Outcome.APPLIED
    async with played.client("nlp") as nlp:
        promised = (await nlp.get(f"/v1/jobs/{job_id}")).json()["promised"]
        assert (promised["kind"], promised["generation"], promised["gpus"]) == ("move", 2, 3)
        assert (promised["chain"][0]["stages"], promised["why"]) == (3, "three stages are faster")
        await world.until_stopped(agents)
        explained = (await nlp.get(f"/v1/jobs/{job_id}/explain")).json()
        assert (explained["state"], explained["reasons"][0]["code"]) == ("queued", "PlacePromised")
        await world.plan()
        job = (await nlp.get(f"/v1/jobs/{job_id}")).json()
        told = (await nlp.get(f"/v1/jobs/{job_id}/events")).json()["items"]
    assert (job["promised"], job["moves"], job["preemptions"], job["retries"]) == (None, 1, 0, 0)
    first, second = job["allocations"]
    assert (first["stop_cause"], first["stop_why"]) == (
        "moved",
        "moved to eu-north:3: three stages are faster",
    )
    assert (second["stop_cause"], second["first_step"], job["why"]) == (None, 6, "three stages are faster")
    stopping = next(event for event in told if event["kind"] == "job.stopping")
    assert stopping["data"]["why"] == "moved to eu-north:3: three stages are faster"
    assert next(event for event in told if event["kind"] == "job.promised")["data"]["chain"] == "eu-north:3"


async def test_a_dry_run_tells_what_it_would_do_to_others_and_does_nothing(
    played: Server, script: Scripted
) -> None:
    world = played.world
    agents = await world.cluster_of("eu-north", "eu-west", slots=2)
    mine = await runs(world, script, agents, {"eu-north": 2})
    other = await runs(world, script, agents, {"eu-west": 1}, project="vision")
    restless = await runs(world, script, agents, {"eu-west": 1})
    delayed = await world.submit(**WIDE)

    def decide(snapshot):  # type: ignore[no-untyped-def]
        yield move_to(restless, {"eu-west": 2})(snapshot)  # whoever comes
        if any(job.spec.name == "newcomer" for job in snapshot.waiting):
            yield Preempt(other, WHY)
            yield move_to(mine, {"eu-west": 1}, why="the newcomer needs it more")(snapshot)
            yield start_at("job-dry-run", {"eu-north": 2})(snapshot)
        else:
            yield start_at(delayed, {"eu-west": 1})(snapshot)

    script.script = decide
    before = played.rows()
    async with played.client("nlp") as nlp:
        plan = (await nlp.post("/v1/plans", json=job_document(name="newcomer", **WIDE))).json()
    assert (plan["decision"], plan["at_once"]) == ("start", False)
    assert played.rows() == before
    found = {each["job_id"]: each for each in plan["displaces"]}
    assert found == {
        mine: {
            "job_id": mine,
            "effect": "moved",
            "from_chain": "eu-north:2",
            "to_chain": "eu-west:1",
            "why": "the newcomer needs it more",
        },
        "another project's job": {
            "job_id": "another project's job",
            "effect": "preempted",
            "from_chain": "eu-west:1",
            "to_chain": None,
            "why": WHY,
        },
        delayed: {
            "job_id": delayed,
            "effect": "delayed",
            "from_chain": None,
            "to_chain": None,
            "why": "it would start in this round otherwise",
        },
    }


async def test_a_share_is_given_changed_and_taken_away(server: Server, admin: httpx.AsyncClient) -> None:
    made = await admin.put("/v1/projects/speech", json={"share": 2.5})
    assert (made.status_code, made.json()["share"], made.json()["jobs"]) == (201, 2.5, {})
    assert (await admin.put("/v1/projects/speech", json={"share": 0})).json()["share"] == 0.0
    again = await admin.put("/v1/projects/speech", json={"share": 0})
    assert (again.status_code, again.json()["share"]) == (200, 0.0)
    snapshot = await server.world.snapshot()
    assert snapshot.shares == {"speech": 0.0}
    assert (await admin.put("/v1/projects/speech", json={"share": None})).json()["share"] is None
    assert (await server.world.snapshot()).shares == {}
    told = [event for event in await server.world.events() if event.object_kind == "project"]
    assert [(event.kind, event.data["share"]) for event in told] == [
        ("project.created", 2.5),
        ("project.changed", 0.0),
        ("project.changed", None),
    ]


@pytest.mark.parametrize("body", [{}, {"share": -1}, {"share": "2"}, {"share": 1, "other": 1}])
async def test_what_is_no_share_is_refused(admin: httpx.AsyncClient, body: dict[str, object]) -> None:
    answer = await admin.put("/v1/projects/nlp", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
