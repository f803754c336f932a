"""What plans do to running jobs, as people read it; and the shares of projects."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import Result

from service.api.schemas.jobs import JOB, Job
from service.api.schemas.placements import ALLOCATION, PROMISED
from service.api.schemas.plans import DISPLACED, PLAN, DryRun
from service.api.schemas.projects import PROJECT, Project
from service.cli.exits import Exit
from tests.unit.cli.conftest import FakeServer

Bace = Callable[..., Result]
JOB_ID = JOB["job_id"]
MOVED = {
    **ALLOCATION,
    "state": "ended",
    "stop_cause": "moved",
    "stop_why": "moved to eu-west:3: it is cheaper",
}


def sent(model: Any, document: Any) -> Any:
    return model.model_validate(document).model_dump(mode="json")


def test_a_job_tells_where_it_goes_on_and_why_its_generations_ended(bace: Bace, server: FakeServer) -> None:
    job = {**JOB, "promised": PROMISED, "moves": 1, "preemptions": 2, "allocations": [MOVED, ALLOCATION]}
    server.answer("GET", f"/v1/jobs/{JOB_ID}", sent(Job, job))
    output = bace("job", JOB_ID).output
    for told in (
        "Goes on here when what it needs has been left",
        PROMISED["why"],
        "1: moved to eu-west:3: it is cheaper",
        "1 time",
        "2 times",
    ):
        assert told in output


def test_a_dry_run_tells_what_a_start_would_do_to_others(bace: Bace, server: FakeServer) -> None:
    paused = {**DISPLACED, "job_id": "job-2", "effect": "preempted", "to_chain": None}
    plan = {**PLAN, "at_once": False, "displaces": [DISPLACED, paused]}
    server.answer("POST", "/v1/plans", sent(DryRun, plan))
    result = bace("plan", "-", stdin="name: x\n")
    assert result.exit_code == Exit.OK
    for told in ("Would start when room has been made", "moved", "us-east:4", "job-2", "the queue"):
        assert told in result.output


@pytest.mark.parametrize(("given", "body"), [("2.5", 2.5), ("0", 0.0), ("none", None)])
def test_a_share_is_set_or_taken_away(bace: Bace, server: FakeServer, given: str, body: float | None) -> None:
    server.answer("PUT", "/v1/projects/nlp", sent(Project, {**PROJECT, "share": body}))
    result = bace("project", "share", "nlp", given, "-o", "json")
    assert result.exit_code == Exit.OK
    assert server.asked[-1]["body"] == {"share": body}
    assert json.loads(result.output)["share"] == body


def test_what_is_no_share_is_refused_before_anybody_is_asked(bace: Bace, server: FakeServer) -> None:
    result = bace("project", "share", "nlp", "half")
    assert (result.exit_code, server.asked) == (Exit.USAGE, [])


def test_projects_are_listed_with_their_shares(bace: Bace, server: FakeServer) -> None:
    documents = [sent(Project, PROJECT), sent(Project, {**PROJECT, "project": "vision", "share": None})]
    server.answer("GET", "/v1/projects", {"items": documents, "next": None})
    output = bace("project", "list").output
    assert "4 queued, 1 running" in output
    assert "vision" in output


def test_the_quota_of_a_project_is_set_by_parts_and_shown(bace: Bace, server: FakeServer) -> None:
    known = {**PROJECT, "quota_gpus": 8, "quota_usd_per_month": 100.0}
    server.answer("GET", "/v1/projects", {"items": [sent(Project, known)], "next": None})
    server.answer("PUT", "/v1/projects/nlp/quota", sent(Project, known))
    assert "100" in bace("project", "quota", "nlp").output
    bace("project", "quota", "nlp", "--gpus", "16")
    bace("project", "quota", "nlp", "--usd-per-month", "none")
    bodies = [asked["body"] for asked in server.asked if asked["method"] == "PUT"]
    assert bodies == [{"gpus": 16, "usd_per_month": 100.0}, {"gpus": 8, "usd_per_month": None}]
    assert bace("project", "quota", "nlp", "--gpus", "many").exit_code == Exit.USAGE
    assert bace("project", "quota", "nlp", "--usd-per-month", "nan").exit_code == Exit.USAGE
    assert bace("project", "quota", "unheard-of").exit_code == Exit.NOT_FOUND
