"""What a command is given and cannot use is refused by name, with what would be right; the rest is done."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from service.cli.api import Api
from service.cli.examples import example
from service.cli.exits import CommandError, Exit
from service.cli.local import start_server
from service.cli.stack import Stack
from tests.unit.cli.conftest import FakeServer

Bace = Callable[..., Result]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["prices", "set", "electricity", "eu", "nan"], "VALUE: nan is not valid"),
        (["prices", "set", "electricity", "eu", "inf"], "VALUE: inf is not valid"),
        (["project", "share", "nlp", "nan"], "WEIGHT: 'nan' is not valid"),
    ],
)
def test_numbers_are_finite(bace: Bace, server: FakeServer, arguments: list[str], told: str) -> None:
    result = bace(*arguments)
    assert result.exit_code == Exit.USAGE
    assert told in result.output
    assert server.asked == []


def test_a_document_that_is_no_json_is_refused(server: FakeServer) -> None:
    with Api(server.url, "bace_test") as api, pytest.raises(CommandError, match="not JSON compliant"):
        api.post("/v1/jobs", {"x": float("nan")})


def test_one_refusal_keeps_no_other_job_from_being_cancelled(bace: Bace, server: FakeServer) -> None:
    for job_id in ("job-a", "job-c"):
        server.answer("POST", f"/v1/jobs/{job_id}/cancel", {"job_id": job_id, "state": "cancelled"})
    server.refuse("POST", "/v1/jobs/job-b/cancel", 404, detail="there is no job job-b")
    result = bace("cancel", "job-b", "job-a", "job-c")
    assert result.exit_code == Exit.NOT_FOUND
    assert [asked["path"].split("/")[3] for asked in server.asked] == ["job-b", "job-a", "job-c"]
    for told in ("job-a cancelled", "job-c cancelled", "there is no job job-b"):
        assert told in result.output


def test_all_refusals_are_told(bace: Bace, server: FakeServer) -> None:
    server.refuse("POST", "/v1/jobs/job-a/cancel", 409, detail="it has ended", code="conflict")
    server.refuse("POST", "/v1/jobs/job-b/cancel", 404, detail="there is no such job")
    result = bace("cancel", "job-a", "job-b")
    assert result.exit_code not in (0, Exit.NOT_FOUND)
    assert "job-a: it has ended; job-b: there is no such job" in " ".join(result.output.split())


def test_several_cancelled_jobs_are_one_document(bace: Bace, server: FakeServer) -> None:
    documents = [{"job_id": job_id, "state": "cancelled"} for job_id in ("job-a", "job-b")]
    for each in documents:
        server.answer("POST", f"/v1/jobs/{each['job_id']}/cancel", each)
    assert json.loads(bace("cancel", "job-a", "job-b", "-o", "json").output) == {"items": documents}
    assert json.loads(bace("cancel", "job-a", "-o", "json").output) == documents[0]


def test_a_port_that_somebody_has_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"--port: {port} is in use") as refusal:
            start_server(Stack(tmp_path), tmp_path, port, {})
    assert refusal.value.exit_code == Exit.USAGE


@pytest.mark.parametrize("arguments", [["up", "--cpu-slots", "1"], ["server"], ["migrate"]])
@pytest.mark.parametrize("folder", ["file/home", "/proc/1"])
def test_a_home_that_cannot_be_made_or_written_to_is_named(
    bace: Bace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], folder: str
) -> None:
    (tmp_path / "file").touch()
    home = tmp_path / folder
    monkeypatch.setenv("BACE_HOME", str(home))
    result = bace(*arguments)
    assert result.exit_code == Exit.USAGE
    assert (
        f"BACE_HOME: '{home}' is not valid: expected a folder that can be made and written to"
        in result.output
    )
    assert "Traceback" not in result.output


LINK = ("link", "eu", "us")


@pytest.mark.parametrize(
    ("arguments", "pointer", "wanted", "told"),
    [
        (
            ["node", "token", "create", "--ttl", "60d"],
            "/expires_in_s",
            "5",
            "--ttl: '60d' is not valid: expected 5",
        ),
        (
            ["token", "create", "x", "--role", "viewer", "--expires", "0s"],
            "/expires_in_s",
            "5",
            "--expires: '0s' is not valid: expected 5",
        ),
        (
            ["token", "create", "x", "--role", "submitter"],
            "/project",
            "a project",
            "--project: expected a project",
        ),
        (["project", "share", "nlp", "--", "-1"], "/share", "5", "WEIGHT: '-1' is not valid: expected 5"),
        (
            ["project", "share", "n p", "1"],
            "/project",
            "a name",
            "PROJECT: 'n p' is not valid: expected a name",
        ),
        (["project", "quota", "nlp", "--gpus=-1"], "/gpus", "5", "--gpus: '-1' is not valid: expected 5"),
        ([*LINK, "--limit", "1Gbps", "--latency", "5d"], "/latency_s", "5", "--latency: '5d' is not valid"),
        (
            [*LINK, "--estimate", "1Tbps", "--latency", "5s"],
            "/capacity_bps",
            "5",
            "--estimate: '1Tbps' is not valid",
        ),
        (["account", "create", "a b", "--kind", "user"], "/name", "a name", "NAME: 'a b' is not valid"),
        (["jobs", "--project", "A"], "/project", "a name", "--project: 'A' is not valid: expected a name"),
    ],
)
def test_a_refused_option_is_told_as_it_was_typed(
    bace: Bace, server: FakeServer, arguments: list[str], pointer: str, wanted: str, told: str
) -> None:
    error = {
        "pointer": pointer,
        "detail": f"expected {wanted}",
        "code": "invalid",
        "value": "as the API has it",
    }
    for method, path in (
        ("POST", "/v1/join-tokens"),
        ("POST", "/v1/tokens"),
        ("POST", "/v1/accounts"),
        ("PUT", "/v1/projects/nlp"),
        ("PUT", "/v1/projects/n%20p"),
        ("PUT", "/v1/projects/nlp/quota"),
        ("PUT", "/v1/links/eu/us"),
        ("GET", "/v1/jobs"),
    ):
        server.refuse(method, path, 422, code="invalid_input", detail=f"not valid: {pointer}", errors=[error])
    for path in ("/v1/links", "/v1/projects"):
        server.answer("GET", path, {"items": [], "next": None})
    result = bace(*arguments)
    assert result.exit_code == Exit.USAGE
    assert told in result.output
    assert pointer not in result.output
    assert "as the API has it" not in result.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            [*LINK, "--limit", "5"],
            "--limit: '5' is not valid: expected a bandwidth of 0 or more with its unit",
        ),
        (
            [*LINK, "--limit", "5Gbps", "--latency", "5"],
            "--latency: '5' is not valid: expected a duration of 0 or",
        ),
        (["token", "rotate", "--overlap", "x"], "--overlap: 'x' is not valid: expected a duration"),
        (["project", "quota", "nlp", "--gpus", "x"], "--gpus: 'x' is not valid: expected a whole number"),
        (["jobs", "--limit", "501"], "expected less than or equal to 500"),
        (["jobs", "--state", "asleep"], "'asleep' is not one of"),
        (["schedule", "job.yaml", "--policy", "bace"], "--policy is for --scenario"),
        (["schedule", "job.yaml", "--picture", "1f1b"], "--picture is for --svg"),
        (["replay", "x.yaml", "--objective", "1"], "--objective is for --policy horizon"),
        (
            ["replay", "x.yaml", "-p", "fifo,lcf", "--cheapest-within", "1"],
            "--cheapest-within is for --policy horizon",
        ),
        (
            ["replay", "x.yaml", "-p", "horizon", "--objective", "1", "--cheapest-within", "1"],
            "--objective and --cheapest-within",
        ),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_by_name(
    bace: Bace, server: FakeServer, arguments: list[str], told: str
) -> None:
    server.answer("GET", "/v1/links", {"items": [], "next": None})
    server.answer("GET", "/v1/projects", {"items": [], "next": None})
    result = bace(*arguments)
    assert result.exit_code == Exit.USAGE
    words = " ".join(result.output.replace("│", " ").split())
    assert told in words
    assert "Value error" not in words
    assert "Input should be" not in words


def test_results_that_cannot_be_written_are_bad_input(bace: Bace) -> None:
    result = bace("replay", str(example("scenarios/three-regions.yaml")), "-p", "fifo", "--out", "/proc/x")
    assert result.exit_code == Exit.USAGE
    assert "--out: '/proc/x' is not valid: expected a folder that can be written to" in result.output


def test_a_result_that_cannot_be_written_is_told_before_anything_is_trained(bace: Bace) -> None:
    result = bace("demo", "--result", "/proc/x")
    assert result.exit_code == Exit.USAGE
    assert "--result: '/proc/x' is not valid: expected a file that can be written" in result.output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--data", "nowhere"], "'nowhere' is not valid: expected a folder"),
        (["--data", ".", "--cells", "nope*"], "--cells: 'nope*' is not valid"),
    ],
)
def test_a_study_of_nothing_is_refused(bace: Bace, options: list[str], told: str) -> None:
    result = bace("bench", *options)
    assert result.exit_code == Exit.USAGE
    assert told in result.output
