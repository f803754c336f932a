"""`bace audit` shows what the log holds."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import Result

from service.api.schemas.audit import AUDIT
from service.cli.exits import Exit
from tests.unit.cli.conftest import FakeServer

Bace = Callable[..., Result]


def test_the_log_is_shown_newest_first_as_far_as_asked(bace: Bace, server: FakeServer) -> None:
    denied = {**AUDIT, "outcome": "denied", "code": "forbidden", "count": 12, "account": ""}
    server.answer("GET", "/v1/audit", {"items": [denied, AUDIT], "next": "4711"})
    result = bace("audit", "--project", "nlp", "--outcome", "denied", "--limit", "2")
    assert result.exit_code == Exit.OK
    for shown in ("forbidden", "× 12", "nightly", "10.1.0.9", "POST /v1/jobs/{job_id}/cancel"):
        assert shown in result.output
    [asked] = server.asked
    assert asked["query"] == "project=nlp&outcome=denied&limit=2"
    as_json = bace("audit", "--limit", "2", "-o", "json")
    assert json.loads(as_json.stdout)["items"] == [denied, AUDIT]
