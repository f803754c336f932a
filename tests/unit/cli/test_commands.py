"""Every command asks the right thing, prints the API's document, and ends with the code of the table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from service.api.schemas.access import TOKEN, NewToken
from service.api.schemas.cluster import LINK, NODE, REGION, Drained, Link, Node, Region
from service.api.schemas.jobs import EXPLANATION, JOB, LOG_LINE, STEP, Explanation, Job, LogLine, Step
from service.api.schemas.plans import PLAN, DryRun
from service.api.schemas.prices import SERIES, Imported, PriceSeries
from service.cli.api import Api
from service.cli.exits import CommandError, Exit
from tests.unit.cli.conftest import FakeServer

Bace = Callable[..., Result]
JOB_ID = JOB["job_id"]
JOB_FILE = "name: x\nmodel: {preset: gpt-2}\ntraining:\n  steps: 0\n"


def sent(model: Any, document: Any) -> Any:
    """The document as the server would send it: it passes the API's own schema."""
    return model.model_validate(document).model_dump(mode="json")


def listed(*items: Any) -> Any:
    return {"items": list(items), "next": None}


LISTS = [
    (["jobs"], "/v1/jobs", sent(Job, JOB), ["gpt-small", "running", "37/120", "eu-west·2 → eu-north·1"]),
    (["nodes"], "/v1/nodes", sent(Node, NODE), ["eu-west-1", "9.1 GFLOP/s", "29500–29599"]),
    (["regions"], "/v1/regions", sent(Region, REGION), ["cpu-slot", "0.1810", "100 Gbps", "no bound"]),
    (["links"], "/v1/links", sent(Link, LINK), ["5 Gbps", "20%", "12ms"]),
    (["prices"], "/v1/prices", sent(PriceSeries, SERIES), ["electricity", "0.181", "usd_per_kwh"]),
    (
        ["token", "list"],
        "/v1/tokens",
        {**TOKEN, "last_used_at_s": None},
        ["submitter", "bace_x7Qd…", "never"],
    ),
]
SINGLE = [
    (
        ["job", JOB_ID],
        f"/v1/jobs/{JOB_ID}",
        sent(Job, JOB),
        ["840ms predicted, 880ms measured", "1 Gbps, 12ms"],
    ),
    (
        ["explain", JOB_ID],
        f"/v1/jobs/{JOB_ID}/explain",
        sent(Explanation, EXPLANATION),
        ["LinkBandwidthExhausted", "position 3 of 17", "stages ≤ 6"],
    ),
]


@pytest.mark.parametrize(("arguments", "path", "document", "shown"), LISTS)
def test_lists_show_what_people_look_for(
    bace: Bace, server: FakeServer, arguments: list[str], path: str, document: Any, shown: list[str]
) -> None:
    server.answer("GET", path, listed(document))
    result = bace(*arguments)
    assert result.exit_code == Exit.OK
    assert [text for text in shown if text not in result.output] == []
    assert server.asked[0]["headers"]["Authorization"] == "Bearer bace_test"


@pytest.mark.parametrize(("arguments", "path", "document", "shown"), SINGLE)
def test_pages_show_what_people_look_for(
    bace: Bace, server: FakeServer, arguments: list[str], path: str, document: Any, shown: list[str]
) -> None:
    server.answer("GET", path, document)
    result = bace(*arguments)
    assert result.exit_code == Exit.OK
    assert [text for text in shown if text not in result.output] == []


@pytest.mark.parametrize(("arguments", "path", "document", "shown"), LISTS + SINGLE)
@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_the_documents_of_the_api_unchanged(
    bace: Bace,
    server: FakeServer,
    arguments: list[str],
    path: str,
    document: Any,
    shown: list[str],
    output: str,
    read: Callable[[str], Any],
) -> None:
    in_a_list = (arguments, path, document, shown) in LISTS
    server.answer("GET", path, listed(document) if in_a_list else document)
    got = read(bace(*arguments, "-o", output).output)
    assert (got["items"] if in_a_list else got) == ([document] if in_a_list else document)


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (401, "unauthenticated", Exit.UNAUTHORISED),
        (403, "forbidden", Exit.UNAUTHORISED),
        (404, "not_found", Exit.NOT_FOUND),
        (409, "ambiguous_id", Exit.NOT_FOUND),
        (409, "conflict", Exit.FAILED),
        (413, "too_large", Exit.USAGE),
        (422, "invalid_input", Exit.USAGE),
        (422, "idempotency_key_reused", Exit.FAILED),
        (503, "unavailable", Exit.FAILED),
    ],
)
def test_refusals_end_with_the_code_of_the_table(
    bace: Bace, server: FakeServer, status: int, code: str, exit_code: Exit
) -> None:
    server.refuse("GET", "/v1/jobs/job-1", status, code=code, detail="told in words")
    result = bace("job", "job-1")
    assert result.exit_code == exit_code
    assert "told in words" in result.output
    assert "Traceback" not in result.output


def test_costs_without_a_known_price_are_told(bace: Bace, server: FakeServer) -> None:
    unpriced = {**JOB, "cost_usd": {**JOB["cost_usd"], "unpriced_entries": 3}}
    server.answer("GET", f"/v1/jobs/{JOB_ID}", sent(Job, unpriced))
    assert "no price was known" in bace("job", JOB_ID).output


def test_no_server_is_told_with_what_to_do(bace: Bace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACE_URL", "http://127.0.0.1:9")
    result = bace("nodes")
    assert result.exit_code == Exit.UNREACHABLE
    assert "bace up" in result.output


def test_an_address_without_a_scheme_is_bad_input(bace: Bace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACE_URL", "127.0.0.1:8642")
    result = bace("nodes")
    assert result.exit_code == Exit.USAGE
    assert "BACE_URL: '127.0.0.1:8642' is not an address" in result.output
    assert "http://127.0.0.1:8642" in result.output


def test_something_else_that_answers_is_told(bace: Bace, server: FakeServer) -> None:
    server.answer("GET", "/v1/nodes", "<html>")
    result = bace("nodes")
    assert result.exit_code == Exit.FAILED
    assert "BACE_URL" in result.output


def test_submit_sends_the_file_once_under_a_key(bace: Bace, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    server.answer("POST", "/v1/jobs", sent(Job, JOB), 201)
    server.answer("GET", f"/v1/jobs/{JOB_ID}", sent(Job, JOB))
    result = bace("submit", "job.yaml", "--idempotency-key", "k-1")
    assert result.exit_code == Exit.OK
    assert server.asked[0]["headers"]["Idempotency-Key"] == "k-1"
    assert server.asked[0]["body"] == yaml.safe_load(JOB_FILE)
    assert f"bace logs {JOB_ID} --follow" in result.output
    assert "Why: eu-west is cheapest now" in result.output
    assert "Schedule: 1f1b" in result.output


def test_refused_fields_are_named_with_their_lines(bace: Bace, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    error = {"pointer": "/training/steps", "detail": "expected a whole number of at least 1", "value": "0"}
    server.refuse("POST", "/v1/jobs", 422, code="invalid_input", errors=[error])
    result = bace("submit", "job.yaml")
    assert result.exit_code == Exit.USAGE
    told = "job.yaml:4: /training/steps: 0 is not valid: expected a whole number of at least 1"
    assert told in result.output


def test_a_refused_text_of_a_file_is_told_in_quotes(bace: Bace, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE.replace("0", '"0"'))
    error = {"pointer": "/training/steps", "detail": "expected a whole number of at least 1", "value": "0"}
    server.refuse("POST", "/v1/jobs", 422, code="invalid_input", errors=[error])
    assert "job.yaml:4: /training/steps: '0' is not valid" in bace("submit", "job.yaml").output


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("name: x\nname: y\n", "job.yaml:2"),
        ("name: [x\n", "job.yaml"),
        (
            "training:\n  steps: .nan\n",
            "job.yaml:2: training.steps: nan is not valid: expected a finite number",
        ),
        (
            "training:\n  steps: 99999999999999999999\n",
            "job.yaml:2: training.steps: 99999999999999999999 is not valid: expected a whole number of at most",
        ),
        ("", "job.yaml: document: nothing is not valid: expected a mapping"),
        ("null\n", "job.yaml:1: document: nothing is not valid: expected a mapping"),
        ("- a\n", "job.yaml:1: document: a list of 1 is not valid: expected a mapping"),
        ("text\n", "job.yaml:1: document: 'text' is not valid: expected a mapping"),
        (None, "No such file"),
    ],
)
def test_unreadable_files_never_reach_the_server(
    bace: Bace, server: FakeServer, tmp_path: Path, content: str | None, told: str
) -> None:
    if content is not None:
        (tmp_path / "job.yaml").write_text(content)
    result = bace("submit", "job.yaml")
    assert result.exit_code == Exit.USAGE
    assert told in result.output
    assert server.asked == []


def test_following_shows_every_step_once_and_fails_with_the_job(
    bace: Bace, server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    failed = sent(Job, {**JOB, "state": "failed"})
    server.answer("POST", "/v1/jobs", failed, 201)
    server.answer("GET", f"/v1/jobs/{JOB_ID}", failed)
    steps = [sent(Step, {**STEP, "step": number}) for number in (1, 2)]
    server.answer("GET", f"/v1/jobs/{JOB_ID}/steps", listed(*steps))
    result = bace("submit", "job.yaml", "--follow")
    assert result.exit_code == Exit.FAILED
    assert result.output.count("step    1/120  loss 3.9100  880ms") == 1
    assert result.output.index("step    2/120") < result.output.index("job failed"), "the end comes last"
    assert "The job ended as failed" in result.output


@pytest.mark.parametrize(
    ("decision", "shown", "code"),
    [
        ("start", "Would start now", Exit.OK),
        ("hold", "Would wait", Exit.OK),
        ("reject", "Could never run", Exit.FAILED),
    ],
)
def test_a_dry_run_tells_what_would_happen_and_stores_nothing(
    bace: Bace, server: FakeServer, decision: str, shown: str, code: Exit
) -> None:
    server.answer("POST", "/v1/plans", sent(DryRun, {**PLAN, "decision": decision}))
    result = bace("submit", "-", "--plan-only", stdin=JOB_FILE)
    assert result.exit_code == code
    assert shown in result.output
    assert [asked["path"] for asked in server.asked] == ["/v1/plans"]


def test_logs_follow_a_stream_to_its_end(bace: Bace, server: FakeServer) -> None:
    line = sent(LogLine, {**LOG_LINE, "text": "loss \x1b[31mred"})
    stream = f"id: 1\nevent: line\ndata: {json.dumps(line)}\n\nevent: end\ndata: {{}}\n\n"
    server.answer("GET", f"/v1/jobs/{JOB_ID}/logs", stream)
    result = bace("logs", JOB_ID, "--follow")
    assert result.exit_code == Exit.OK
    assert result.output == "stage 1 loss \N{REPLACEMENT CHARACTER}[31mred\n"


def test_nothing_written_is_told_beside_the_output(bace: Bace, server: FakeServer) -> None:
    server.answer("GET", f"/v1/jobs/{JOB_ID}/logs", listed())
    result = bace("logs", JOB_ID, "--stage", "7")
    assert result.exit_code == Exit.OK
    assert result.stdout == ""
    assert "No process of stage 7 has written anything" in result.stderr


def test_a_job_that_does_not_wait_has_nothing_to_explain(bace: Bace, server: FakeServer) -> None:
    running = {**EXPLANATION, "state": "running", "position": None, "reasons": [], "regions": []}
    running |= {"would_start": [], "blocking_jobs": []}
    server.answer("GET", f"/v1/jobs/{JOB_ID}/explain", sent(Explanation, running))
    assert "It does not wait" in bace("explain", JOB_ID).output
    server.answer("GET", f"/v1/jobs/{JOB_ID}/explain", sent(Explanation, EXPLANATION))
    assert "It does not wait" not in bace("explain", JOB_ID).output


def test_a_submission_that_is_rejected_at_once_has_failed(
    bace: Bace, server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    rejected = sent(Job, {**JOB, "state": "rejected"})
    server.answer("POST", "/v1/jobs", rejected, 201)
    server.answer("GET", f"/v1/jobs/{JOB_ID}", rejected)
    result = bace("submit", "job.yaml")
    assert result.exit_code == Exit.FAILED
    assert "could never run on this cluster" in result.output
    assert f"bace cancel {JOB_ID}" in result.output


@pytest.mark.parametrize("named", [["deadline", "max_wait"], []])
def test_limits_that_the_policy_does_not_plan_by_are_told(
    bace: Bace, server: FakeServer, tmp_path: Path, named: list[str]
) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    job = {**JOB, "spec": {**JOB["spec"], "deadline": "2100-01-01T00:00:00Z", "max_wait": "6h"}}
    server.answer("POST", "/v1/jobs", sent(Job, job), 201)
    server.answer("GET", f"/v1/jobs/{JOB_ID}", sent(Job, job))
    first = {"kind": "job.queued", "data": {"not_planned_by": named} if named else {}}
    server.answer("GET", f"/v1/jobs/{JOB_ID}/events", listed(first))
    server.answer("POST", "/v1/plans", sent(DryRun, {**PLAN, "not_planned_by": named}))
    for command in (("submit", "job.yaml"), ("plan", "job.yaml"), ("job", JOB_ID)):
        output = bace(*command).output
        assert ("Not heeded by this server's policy: deadline, max_wait." in output) == bool(named)


def test_a_rejected_job_is_not_said_to_be_complete(bace: Bace, server: FakeServer) -> None:
    ended = {**JOB, "jct_s": 3.0, "reported_steps": 0}
    server.answer("GET", f"/v1/jobs/{JOB_ID}", sent(Job, {**ended, "state": "rejected"}))
    assert "completion time" not in bace("job", JOB_ID).output
    server.answer("GET", f"/v1/jobs/{JOB_ID}", sent(Job, {**ended, "state": "failed"}))
    assert "completion time" in bace("job", JOB_ID).output


def test_a_job_tells_the_gradient_norm_of_its_last_step_if_it_has_one(bace: Bace, server: FakeServer) -> None:
    server.answer("GET", f"/v1/jobs/{JOB_ID}", sent(Job, JOB))
    assert re.search(r"gradient norm\s+0\.84\s", bace("job", JOB_ID).output)
    server.answer("GET", f"/v1/jobs/{JOB_ID}", sent(Job, {**JOB, "last_grad_norm": None}))
    assert "gradient norm" not in bace("job", JOB_ID).output


def test_a_stream_whose_token_has_ended_is_told(bace: Bace, server: FakeServer) -> None:
    problem = {"status": 401, "code": "unauthenticated", "detail": "the token is revoked"}
    server.answer("GET", f"/v1/jobs/{JOB_ID}/logs", f"event: error\ndata: {json.dumps(problem)}\n\n")
    result = bace("logs", JOB_ID, "--follow")
    assert result.exit_code == Exit.UNAUTHORISED
    assert "the token is revoked" in result.output


@pytest.mark.parametrize("action", ["cordon", "uncordon"])
def test_nodes_are_taken_out_and_given_back(bace: Bace, server: FakeServer, action: str) -> None:
    server.answer("POST", f"/v1/nodes/eu-west-1/{action}", sent(Node, {**NODE, "state": "cordoned"}))
    assert "cordoned" in bace(action, "eu-west-1").output


def test_draining_tells_what_moves_and_what_stays(bace: Bace, server: FakeServer) -> None:
    drained = {"node": NODE, "restarting": ["job-a"], "staying": ["job-b"]}
    server.answer("POST", "/v1/nodes/eu-west-1/drain", sent(Drained, drained))
    output = bace("drain", "eu-west-1").output
    assert "checkpoints: job-a" in output
    assert "until they end: job-b" in output


def test_a_made_token_is_shown(bace: Bace, server: FakeServer) -> None:
    server.answer("POST", "/v1/tokens", sent(NewToken, {**TOKEN, "token": "bace_secret"}), 201)
    result = bace("token", "create", "ci", "--role", "submitter", "--project", "nlp", "--expires", "30d")
    assert "bace_secret" in result.output
    assert server.asked[0]["body"] == {
        "name": "ci",
        "role": "submitter",
        "project": "nlp",
        "expires_in_s": 30 * 86400.0,
    }


def test_prices_are_set_negative_ones_too(bace: Bace, server: FakeServer) -> None:
    server.answer("PUT", "/v1/prices", sent(PriceSeries, SERIES))
    assert bace("prices", "set", "electricity", "eu-west", "-0.012").exit_code == Exit.OK
    assert server.asked[0]["body"] == {
        "kind": "electricity",
        "region": "eu-west",
        "source": "set by hand",
        "value": -0.012,
    }


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["egress", "eu-west", "0.02"], "--to"),
        (["rent", "eu-west", "2"], "--gpu-type"),
        (["electricity", "eu-west", "0.1", "--to", "eu-north"], "--to"),
        (["carbon", "eu-west", "90", "--gpu-type", "A100"], "--gpu-type"),
    ],
)
def test_what_a_price_lacks_is_named_as_its_option(
    bace: Bace, server: FakeServer, arguments: list[str], option: str
) -> None:
    result = bace("prices", "set", *arguments)
    assert result.exit_code == Exit.USAGE
    assert option in result.output
    assert server.asked == []


def test_prices_are_imported_in_dollars_a_kilowatt_hour_with_when_they_were_known(
    bace: Bace, server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "p.csv").write_text(
        "timestamp_utc,eu-west\n2026-11-30T00:00:00Z,181.0\n2026-11-30T01:00:00Z,-5.0\n"
    )
    imported = sent(Imported, {"series_id": "price-1", "points": 2, "new_points": 2, "unused_because": None})
    server.answer("POST", "/v1/prices/import", imported)
    result = bace("prices", "import", "p.csv", "--region", "eu-west")
    assert "2 new of 2 points" in result.output
    body = server.asked[0]["body"]
    assert body["unit"] == "usd_per_kwh"
    assert [point["value"] for point in body["points"]] == [0.181, -0.005]
    midnight_s = 1796083200.0 - 86400.0
    assert body["points"][0] == {
        "valid_from_s": midnight_s,
        "known_at_s": midnight_s - 43200.0,
        "value": 0.181,
    }


def test_a_bad_price_file_names_the_row(bace: Bace, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("timestamp_utc,eu-west\n2026-11-30T00:00:00Z,cheap\n")
    result = bace("prices", "import", "p.csv", "--region", "eu-west")
    assert result.exit_code == Exit.USAGE
    assert "  p.csv:2: " in result.output
    assert server.asked == []


@pytest.mark.parametrize("header", ["hour,price", "time,price"])
def test_a_price_file_with_other_columns_is_told_which_are_looked_for(
    bace: Bace, server: FakeServer, tmp_path: Path, header: str
) -> None:
    (tmp_path / "p.csv").write_text(f"{header}\n2026-11-30T00:00:00Z,181.0\n")
    result = bace("prices", "import", "p.csv", "--region", "eu-west")
    assert result.exit_code == Exit.USAGE
    told = " ".join(result.output.split())
    assert "a column timestamp_utc or time_utc or timestamp or time" in told
    assert "prices in the column eu-west: --column names another" in told


def test_a_rent_that_nothing_is_billed_by_is_told(bace: Bace, server: FakeServer) -> None:
    why = "no node in eu-west has H100; its GPU types are: A100-80G"
    rent = {**SERIES, "kind": "rent", "gpu_type": "H100", "unused_because": why}
    server.answer("PUT", "/v1/prices", sent(PriceSeries, rent))
    result = bace("prices", "set", "rent", "eu-west", "2.1", "--gpu-type", "H100")
    assert result.exit_code == Exit.OK
    assert f"Nothing is billed by this rent: {why}." in " ".join(result.output.split())


@pytest.mark.parametrize("text", ["..", "a/../../v1/tokens", "a?x=1", "ä"])
def test_an_id_cannot_reach_another_address(bace: Bace, server: FakeServer, text: str) -> None:
    bace("job", text)
    assert all(
        asked["path"].startswith("/v1/jobs/") and "/v1/tokens" not in asked["path"] for asked in server.asked
    )
    assert all(asked["query"] == "" for asked in server.asked)


def test_usage_errors_end_with_2(bace: Bace) -> None:
    assert bace("nonsense").exit_code == Exit.USAGE
    assert bace("jobs", "-o", "xml").exit_code == Exit.USAGE
    assert bace("jobs", "--state", "asleep").exit_code == Exit.USAGE
    assert bace("token", "create", "x", "--role", "admin", "--expires", "soon").exit_code == Exit.USAGE


class TestPatience:
    """Whoever is told to come again does, as long as it is not for ever."""

    @pytest.mark.parametrize("status", [429, 503])
    def test_a_busy_server_is_asked_again_when_it_says(self, server: FakeServer, status: int) -> None:
        waited: list[float] = []

        def sleep(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 2:
                server.answer("GET", "/v1/jobs", listed())

        server.refuse("GET", "/v1/jobs", status)
        server.retry_after = "7"
        with Api(server.url, "bace_t", sleep=sleep) as api:
            assert api.get("/v1/jobs")["items"] == []
        assert waited == [7.0, 7.0]

    @pytest.mark.parametrize(("retry_after", "times"), [("1", 5), ("3600", 0), ("", 0), ("soon", 0)])
    def test_it_does_not_wait_for_ever_nor_without_being_told(
        self, server: FakeServer, retry_after: str, times: int
    ) -> None:
        waited: list[float] = []
        server.refuse("GET", "/v1/jobs", 429, code="too_many_requests")
        server.retry_after = retry_after
        with Api(server.url, "bace_t", sleep=waited.append) as api, pytest.raises(CommandError) as refusal:
            api.get("/v1/jobs")
        assert (len(waited), refusal.value.exit_code) == (times, Exit.FAILED)
        assert "Nothing was done" in refusal.value.hint

    def test_a_stream_that_may_not_be_opened_yet_is_opened_when_it_may(self, server: FakeServer) -> None:
        def sleep(seconds: float) -> None:
            assert seconds == 5.0
            server.answer("GET", "/v1/events", "id: 1\nevent: tick\ndata: {}\n\nevent: end\ndata: {}\n\n")

        server.refuse("GET", "/v1/events", 429, code="too_many_requests")
        server.retry_after = "5"
        with Api(server.url, "bace_t", sleep=sleep) as api:
            assert [message.kind for message in api.stream("/v1/events")] == ["tick"]


MEASURED_LINK = sent(Link, LINK)
UNMEASURED_LINK = sent(
    Link,
    {
        **LINK,
        "measured": dict.fromkeys(LINK["measured"]),
        "last_test": None,
    },
)


def test_links_tell_what_was_set_measured_and_is_gone_by(bace: Bace, server: FakeServer) -> None:
    server.answer("GET", "/v1/links", listed(MEASURED_LINK))
    shown = bace("links").output
    assert [
        text for text in ("≤ 5 Gbps", "5.6 Gbps", "2h33m", "limit", "measured") if text not in shown
    ] == []
    server.answer("GET", "/v1/links", listed(UNMEASURED_LINK))
    assert "Measured" not in bace("links").output, "nothing is shown of what never was"


def test_a_link_tells_why_planning_goes_by_its_figures(bace: Bace, server: FakeServer) -> None:
    server.answer("GET", "/v1/links", listed(MEASURED_LINK))
    shown = " ".join(bace("link", "eu-west", "eu-north").output.split())
    assert "more was measured than the limit that was set" in shown
    assert "latency, done" in shown
    assert bace("link", "eu-west", "mars").exit_code == Exit.NOT_FOUND


def test_a_link_is_changed_in_what_was_said_and_nothing_else(bace: Bace, server: FakeServer) -> None:
    server.answer("GET", "/v1/links", listed(MEASURED_LINK))
    server.answer("PUT", "/v1/links/eu-west/eu-north", MEASURED_LINK)
    assert bace("link", "eu-west", "eu-north", "--measure", "off").exit_code == Exit.OK
    put = server.asked[-1]
    assert put["body"] == {
        "capacity_bps": 5e9,
        "latency_s": 0.01,
        "capacity_is_limit": True,
        "measuring": "off",
    }
    assert put["headers"]["If-Match"] == '"1"'
    bace("link", "eu-west", "eu-north", "--estimate", "25Gbps", "--measure", "server")
    assert server.asked[-1]["body"]["capacity_bps"] == 25e9
    assert server.asked[-1]["body"]["capacity_is_limit"] is False


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--limit", "25GBps"], "--limit"),
        (["--latency", "soon"], "--latency"),
        (["--limit", "1Gbps", "--estimate", "2Gbps"], "--estimate"),
    ],
)
def test_what_cannot_be_meant_of_a_link_is_named(
    bace: Bace, server: FakeServer, options: list[str], named: str
) -> None:
    server.answer("GET", "/v1/links", listed(MEASURED_LINK))
    result = bace("link", "eu-west", "eu-north", *options)
    assert result.exit_code == Exit.USAGE
    assert named in result.output
    assert len(server.asked) == 1, "nothing was changed"
