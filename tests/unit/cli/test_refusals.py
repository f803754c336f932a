"""What a command is given and cannot use is refused by name, with what would be right; the rest is done."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from service.cli.api import Api
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
        (["project", "share", "nlp", "nan"], "WEIGHT: nan is not valid"),
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


def test_a_folder_that_cannot_be_made_is_named(
    bace: Bace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BACE_HOME", str(tmp_path / "file" / "home"))
    result = bace("up", "--cpu-slots", "1")
    assert result.exit_code == Exit.USAGE
    assert "BACE_HOME: " in result.output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--data", "nowhere"], "nowhere is not valid: expected a folder"),
        (["--data", ".", "--cells", "nope*"], "--cells: nope* is not valid"),
    ],
)
def test_a_study_of_nothing_is_refused(bace: Bace, options: list[str], told: str) -> None:
    result = bace("bench", *options)
    assert result.exit_code == Exit.USAGE
    assert told in result.output
