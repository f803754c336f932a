"""`bace schedule`: the schedules of a job side by side, from a server or from a scenario file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from typer.testing import Result

from scheduler.pipeline.plan.catalogue import SCHEDULES
from service.api.schemas.schedules import COMPARISON, PICTURE, SCHEDULE, Comparison
from service.cli.exits import Exit
from tests.unit.cli.conftest import FakeServer

Bace = Callable[..., Result]
SCENARIO = str(Path(__file__).parents[3] / "deploy" / "examples" / "scenarios" / "three-regions.yaml")
CHAIN = "eu-west-2:2,eu-west-3:2"
JOB = """
name: llama
model: {preset: llama-3.1-8b, seq_len: 2048}
training: {steps: 10, micro_batches: 8}
parallelism: {stages: 4}
"""


def offline(bace: Bace, *arguments: str, job: str = JOB) -> Result:
    return bace("schedule", "-", "--scenario", SCENARIO, *arguments, stdin=job)


def test_a_server_is_asked_with_the_job_the_chain_and_what_to_draw(bace: Bace, server: FakeServer) -> None:
    full = {**SCHEDULE, "schedule": "gpipe", "fits": False, "peak_bytes": [4e9, 4.1e9, 1e9]}
    no = {
        **SCHEDULE, "schedule": "zb-v", "available": False, "comes_to": None, "iteration_s": None,
        "bubble_fraction": None, "peak_bytes": [], "fits": None, "links": [], "usd_per_1000_steps": None,
        "runs": "not", "note": "model.layers is 7, it needs a multiple of 6",
    }  # fmt: skip
    made = {**COMPARISON, "schedules": [full, no, {**SCHEDULE, "schedule": "1f1b"}], "picture": PICTURE}
    server.answer("POST", "/v1/schedules", Comparison.model_validate(made).model_dump(mode="json"))
    result = bace(
        "schedule",
        "-",
        "--placement",
        "eu-west:2,eu-north:1",
        "--svg",
        "out.svg",
        "--picture",
        "1f1b",
        stdin=JOB,
    )
    assert result.exit_code == Exit.OK
    [asked] = server.asked
    assert asked["body"]["name"] == "llama"
    assert parse_qs(asked["query"]) == {"placement": ["eu-west:2,eu-north:1"], "picture": ["1f1b"]}
    assert Path("out.svg").read_text(encoding="utf-8") == PICTURE["svg"]
    for told in ("gpt-small", "eu-west:2>eu-north:1", "no: rank 0, 1", "yes", "a multiple of 6", "$0.13"):
        assert told in result.output
    assert result.output.index("1f1b (slack-1f1b)") < result.output.index("gpipe"), (
        "what does not fit comes last"
    )


def test_a_server_s_refusal_names_the_line_of_the_file(bace: Bace, server: FakeServer) -> None:
    errors = [{"pointer": "/training/steps", "detail": "expected a whole number", "value": "x"}]
    server.refuse("POST", "/v1/schedules", 422, code="invalid_input", errors=errors)
    result = bace("schedule", "-", stdin=JOB)
    assert result.exit_code == Exit.USAGE
    assert "standard input:4: /training/steps" in result.output


def test_with_a_scenario_no_server_is_asked_and_the_document_is_the_api_s(
    bace: Bace, server: FakeServer
) -> None:
    result = offline(bace, "--placement", CHAIN, "-o", "json")
    assert result.exit_code == Exit.OK
    document = json.loads(result.stdout)
    Comparison.model_validate(document)
    assert [each["schedule"] for each in document["schedules"]] == list(SCHEDULES)
    assert (document["chain"], document["picture"]) == ("eu-west-2:2>eu-west-3:2", None)
    assert server.asked == []


def test_updates_are_advised_on_with_reasons_and_what_is_not_known(bace: Bace) -> None:
    advised = offline(bace, "--placement", CHAIN)
    of_a_command = offline(bace, "--placement", CHAIN, job=JOB + "run: {command: [train]}\n")

    for told in (
        "Advice on updates",
        "has the lowest bound: an update every 8 micro-batches, in the time of 80 without bubbles",
        "· synchronous: bound",
        "27% of the time in the bubble",
        "· paci: bound",
        "run.updates (rule: paci, every: 8)",
        "Nothing acts on it.",
    ):
        assert told in " ".join(advised.output.split()), told
    assert of_a_command.exit_code == Exit.OK
    assert "Advice" not in of_a_command.output


def test_the_policy_chooses_where_no_chain_is_named_and_the_timeline_is_drawn(bace: Bace) -> None:
    result = offline(bace, "--policy", "horizon", "--svg", "auto.svg")
    assert result.exit_code == Exit.OK
    assert "horizon's choice now" in result.output
    assert "Timeline of auto: auto.svg" in result.output
    assert Path("auto.svg").read_text(encoding="utf-8").startswith("<svg ")


@pytest.mark.parametrize(
    ("arguments", "job", "code", "why"),
    [
        (["--placement", "mars:2"], JOB, Exit.USAGE, "expected a region that there is"),
        (["--policy", "best"], JOB, Exit.USAGE, "--policy: 'best' is not valid"),
        (["--svg", "x.svg", "--picture", "zigzag"], JOB, Exit.USAGE, "--picture: 'zigzag' is not valid"),
        (
            ["--svg", "no/x.svg"],
            JOB,
            Exit.USAGE,
            "--svg: 'no/x.svg' is not valid: expected a file that can be",
        ),
        ([], JOB.replace("steps: 10", "steps: 0"), Exit.USAGE, "standard input:4: /training/steps"),
        ([], JOB + "placement: {regions: [mars]}\n", Exit.USAGE, "/placement/regions/0"),
        ([], JOB.replace("steps: 10", "steps: 1, micro_batch: 9999"), Exit.FAILED, "MemoryTooSmall"),
    ],
)
def test_what_is_wrong_is_told_with_the_exit_code_of_the_table(
    bace: Bace, arguments: list[str], job: str, code: Exit, why: str
) -> None:
    result = offline(bace, *arguments, job=job)
    assert result.exit_code == code
    assert why in result.output
    assert "Traceback" not in result.output


def test_a_scenario_that_cannot_be_read_is_bad_input(bace: Bace) -> None:
    result = bace("schedule", "-", "--scenario", "none.yaml", stdin=JOB)
    assert result.exit_code == Exit.USAGE
    assert "a scenario file that can be read" in result.output


def test_what_updates_within_an_iteration_do_is_told(bace: Bace, server: FakeServer) -> None:
    small = JOB.replace("llama-3.1-8b", "gpt-3-1.3b")
    job = small + "run: {builtin: gpt, updates: {rule: 2bw, every: 4}}\n"
    result = offline(bace, "--placement", CHAIN, job=job)
    assert result.exit_code == Exit.OK
    for told in ("every 4 micro-batches", "one into the other", "to be left out", "allow fewer in flight"):
        assert told in " ".join(result.output.split()), told
    plain = offline(bace, "--placement", CHAIN)
    assert "updates  every" not in plain.output
