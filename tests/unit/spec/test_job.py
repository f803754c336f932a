"""Job files: what is legal parses to one meaning, what is not is named field by field."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.job import Elasticity, Recompute, Schedule
from scheduler.pipeline.plan.ir import LowRank
from scheduler.presets import model as preset
from scheduler.spec.issues import SpecError
from scheduler.spec.job import parse_job

CONTRACT = """
name: llama-7b
project: nlp
model: {preset: Llama-2-7B}
training: {steps: 1000, micro_batch: 4, micro_batches: 64, dtype: bf16, schedule: 1f1b, recompute: selective}
parallelism: {stages: auto, tensor: 1, data: 1}
elasticity: none
placement: {regions: [eu-*, us-east-1], exclude: [], max_regions: 3}
data: [{uri: s3://corpus, size: 200GB, regions: [eu-west-1]}]
priority: 50
deadline: 2026-12-24T00:00:00Z
budget_usd: 1200.5
max_wait: 6h
checkpoint: {every_steps: 100, uri: s3://ckpt}
stop: {signal: TERM, grace: 120s}
run: {builtin: gpt, corpus: data/text}
"""


def job(**changes: Any) -> dict[str, Any]:
    """A small legal job with sections replaced."""
    legal = {"name": "small", "model": {"preset": "llama-2-7b"}, "training": {"steps": 10}}
    return {**legal, **changes}


def issues(document: object) -> dict[str, str]:
    """Pointer -> what would be right."""
    with pytest.raises(SpecError) as caught:
        parse_job(document)  # type: ignore[arg-type]
    return {issue.pointer: issue.expected for issue in caught.value.issues}


def test_the_whole_contract_reaches_the_planner() -> None:
    spec = parse_job(CONTRACT).to_spec("j-1", "nlp", 12.0)
    assert (spec.job_id, spec.project, spec.submit_s, spec.name) == ("j-1", "nlp", 12.0, "llama-7b")
    assert spec.model == preset("llama-2-7b")
    assert (spec.training.steps, spec.training.micro_batch, spec.training.micro_batches) == (1000, 4, 64)
    assert (spec.training.schedule, spec.training.recompute) == (Schedule.ONE_F_ONE_B, Recompute.SELECTIVE)
    assert spec.placement.regions == ("eu-*", "us-east-1")
    assert spec.placement.max_regions == 3
    assert spec.elasticity is Elasticity.NONE
    assert (spec.deadline_s, spec.budget_usd) == (1798070400.0, 1200.5)


@pytest.mark.parametrize(
    "document",
    [
        CONTRACT,
        job(),
        job(run={"command": ["python", "train.py"], "secrets": {"TOKEN": "env:TOKEN"}}),
        job(model={"layers": 4, "hidden": 96, "heads": 3, "vocab": 256, "seq_len": 64}, deadline=1.5),
        job(
            profile={
                "forward_s": {"A100-80G": 0.1},
                "backward_s": {"A100-80G": 0.2},
                "activation_bytes": "4MB",
                "stage_memory_bytes": "80GB",
                "inflight_bytes": 0,
            }
        ),
    ],
)
def test_the_completed_job_reads_back_to_itself(document: Any) -> None:
    completed = parse_job(document).completed()
    again = parse_job(completed)
    assert again.completed() == completed
    assert again.to_spec("j", "p", 0.0) == parse_job(document).to_spec("j", "p", 0.0)


def test_defaults_are_filled_in() -> None:
    completed = parse_job(job()).completed()
    assert completed["elasticity"] == "resize"
    assert completed["run"] == {"builtin": "gpt", "optimizer": "adamw", "learning_rate": 3e-4, "seed": 0}
    assert completed["model"]["layers"] == 32
    assert completed["stop"] == {"signal": "TERM", "grace": 30.0}
    assert parse_job(job(run={"command": ["a"]})).effective_elasticity is Elasticity.NONE
    assert "deadline" not in completed


def test_a_shape_has_the_defaults_of_its_family() -> None:
    given = {"layers": 4, "hidden": 96, "heads": 3, "vocab": 256, "seq_len": 64}
    shape = parse_job(job(model=given)).model.shape()
    assert (shape.kv_heads, shape.head_dim, shape.ffn, shape.gated_mlp) == (3, 32, 256, True)
    plain = parse_job(job(model={**given, "gated_mlp": False})).model.shape()
    assert plain.ffn == 4 * 96


def test_a_preset_may_train_at_another_sequence_length_but_is_not_another_model() -> None:
    assert parse_job(job(model={"preset": "llama-2-7b", "seq_len": 512})).model.shape().seq_len == 512
    assert "32" in issues(job(model={"preset": "llama-2-7b", "layers": 31}))["/model/layers"]


@pytest.mark.parametrize(
    ("stages", "bounds"), [("auto", (None, None)), (8, (8, 8)), ("4..16", (4, 16)), ("04..8", (4, 8))]
)
def test_stages_are_auto_a_number_or_a_range(stages: object, bounds: object) -> None:
    spec = parse_job(job(parallelism={"stages": stages})).to_spec("j", "p", 0.0).parallelism
    assert (spec.stages_min, spec.stages_max) == bounds
    assert spec.named_stages == spec.stages_max


@pytest.mark.parametrize(
    ("changes", "pointer", "expected"),
    [
        ({"name": "../etc"}, "/name", "matches"),
        ({"name": "Upper"}, "/name", "matches"),
        ({"name": "a" * 64}, "/name", "matches"),
        ({"name": "small\n"}, "/name", "matches"),
        ({"nam": "x"}, "/nam", "did you mean name"),
        ({"model": {"preset": "llama-9b"}}, "/model/preset", "known name"),
        ({"model": {"layers": 2}}, "/model/hidden", "preset"),
        ({"training": {"steps": 0}}, "/training/steps", "greater than or equal to 1"),
        ({"training": {"steps": "10"}}, "/training/steps", "integer"),
        ({"training": {"steps": True}}, "/training/steps", "integer"),
        ({"training": {"steps": 1, "schedule": "zigzag"}}, "/training/schedule", "slack-1f1b"),
        ({"training": {"steps": 1, "schedule": "lagged-1f1b"}}, "/training/schedule", "slack-1f1b, auto"),
        ({"training": {"steps": 1, "schedul": "1f1b"}}, "/training/schedul", "did you mean schedule"),
        ({"training": None}, "/training", "a mapping"),
        ({"parallelism": {"stages": 64}}, "/parallelism/stages", "at most 32 stages"),
        ({"parallelism": {"stages": "5..3"}}, "/parallelism/stages", "4..16"),
        ({"parallelism": {"stages": 0}}, "/parallelism/stages", "4..16"),
        ({"parallelism": {"tensor": -1}}, "/parallelism/tensor", "greater than or equal to 1"),
        ({"parallelism": {"data": float("nan")}}, "/parallelism/data", "finite"),
        ({"parallelism": {"data": float("inf")}}, "/parallelism/data", "finite"),
        ({"parallelism": {"data": 0.25}}, "/parallelism/data", "at least one GPU"),
        ({"parallelism": {"data": 1.4}}, "/parallelism/data", "whole number of GPUs"),
        ({"placement": {"regions": ["a/../b"]}}, "/placement/regions/0", "matches"),
        ({"placement": {"regions": ["x"] * 65}}, "/placement/regions", "at most 64"),
        ({"placement": {"home": "us-1", "regions": ["eu-*"]}}, "/placement/home", "allows"),
        ({"placement": {"home": "eu-1", "exclude": ["eu-1"]}}, "/placement/home", "does not name"),
        ({"data": [{"uri": "s3://a/../b", "size": 1}]}, "/data/0/uri", "without `..`"),
        ({"data": [{"uri": "s3://a", "size": "-5GB"}]}, "/data/0/size", "80GB"),
        ({"priority": 101}, "/priority", "less than or equal to 100"),
        ({"deadline": "2026-12-24T00:00:00"}, "/deadline", "zone"),
        ({"budget_usd": -1}, "/budget_usd", "greater than 0"),
        ({"max_wait": "soon"}, "/max_wait", "6h"),
        ({"checkpoint": {"keep": 0}}, "/checkpoint/keep", "1"),
        ({"checkpoint": {"keep": 1001}}, "/checkpoint/keep", "1000"),
        ({"checkpoint": {"uri": "/var/ckpt"}}, "/checkpoint/uri", "matches"),
        ({"stop": {"grace": "2h"}}, "/stop/grace", "3600"),
        ({"stop": {"signal": "KILL"}}, "/stop/signal", "TERM"),
        ({"run": {}}, "/run", "builtin: gpt"),
        ({"run": {"command": ["a"], "corpus": "b"}}, "/run/corpus", "builtin"),
        ({"run": {"builtin": "gpt", "image": "x"}}, "/run/image", "command"),
        ({"run": {"command": []}}, "/run/command", "at least 1"),
        ({"run": {"command": ["a\x00b"]}}, "/run/command/0", "matches"),
        ({"run": {"command": ["a"], "env": {"RANK": "1"}}}, "/run/env/RANK", "sets this variable itself"),
        ({"run": {"command": ["a"], "env": {"BACE_X": "1"}}}, "/run/env/BACE_X", "sets this variable itself"),
        ({"run": {"builtin": "gpt", "corpus": "../../secret"}}, "/run/corpus", "without `..`"),
        ({"project": "x" * 10_000_000}, "/project", "matches"),
    ],
)
def test_whatever_is_wrong_is_named_with_what_would_be_right(
    changes: dict[str, Any], pointer: str, expected: str
) -> None:
    found = issues(job(**changes))
    assert expected in found[pointer]
    others = {"/model/heads", "/model/vocab", "/model/seq_len"}  # missing beside /model/hidden
    assert set(found) <= {pointer, *others}


def test_all_issues_come_at_once_and_each_has_its_line() -> None:
    text = (
        "name: ../x\nmodel: {preset: llama-2-7b}\ntraining:\n  steps: 0\n  micro_batch: .nan\ncolour: red\n"
    )
    with pytest.raises(SpecError) as caught:
        parse_job(text, source="job.yaml")
    lines = {issue.pointer: issue.line for issue in caught.value.issues}
    assert lines == {"/name": 1, "/training/steps": 4, "/training/micro_batch": 5, "/colour": 6}
    assert "job.yaml:4: training.steps: 0 is not valid: expected greater than or equal to 1" in str(
        caught.value
    )


def test_a_secret_in_the_place_of_its_reference_is_never_repeated() -> None:
    with pytest.raises(SpecError) as caught:
        parse_job(job(run={"command": ["a"], "secrets": {"TOKEN": "hunter2"}}))
    assert "hunter2" not in str(caught.value)
    assert "reference" in str(caught.value)


def test_a_huge_value_is_not_repeated_whole() -> None:
    with pytest.raises(SpecError) as caught:
        parse_job(job(project="x" * 10_000_000))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("document", [[], "- a\n- b\n", "", "just text", None, 7])
def test_something_that_is_no_mapping_is_refused(document: object) -> None:
    assert "mapping" in issues(document)[""]


def test_a_codec_is_what_its_owner_asks_for_and_is_told_to_no_job_without() -> None:
    coded = parse_job(job(parallelism={"codec": {"mapl": {"rank": 64}}}))

    assert coded.to_spec("j-1", "nlp", 0.0).parallelism.codec == LowRank(64)
    assert coded.completed()["parallelism"]["codec"] == {"mapl": {"rank": 64}}
    assert parse_job(coded.completed()).parallelism == coded.parallelism
    plain = parse_job(job())
    assert plain.to_spec("j-1", "nlp", 0.0).parallelism.codec is None
    assert "codec" not in plain.completed()["parallelism"]


@pytest.mark.parametrize(
    ("changes", "pointer", "expected"),
    [
        (
            {"parallelism": {"codec": {"mapl": {"rank": 4097}}}},
            "/parallelism/codec/mapl/rank",
            "at most hidden = 4096",
        ),
        ({"parallelism": {"codec": {"mapl": {"rank": 0}}}}, "/parallelism/codec/mapl/rank", "1"),
        ({"parallelism": {"codec": {"mapl": {}}}}, "/parallelism/codec/mapl/rank", ""),
        ({"parallelism": {"codec": {"zip": {"rank": 4}}}}, "/parallelism/codec/zip", ""),
        (
            {"parallelism": {"codec": {"mapl": {"rank": 8}}}, "run": {"command": ["train"]}},
            "/parallelism/codec",
            "a command compresses by itself",
        ),
    ],
)
def test_a_codec_that_will_not_do_is_named(changes: dict[str, Any], pointer: str, expected: str) -> None:
    assert expected in issues(job(**changes))[pointer]


@pytest.mark.parametrize(
    ("changes", "builtin"),
    [
        ({}, True),
        ({"run": {"command": ["python", "train.py"]}}, False),
        ({"parallelism": {"tensor": 2}}, False),
        ({"model": {"preset": "gpt-3-1.3b"}}, False),
        ({"model": {"preset": "mixtral-8x7b"}}, False),
    ],
)
def test_only_what_the_built_in_worker_can_train_has_its_layers(
    changes: dict[str, Any], builtin: bool
) -> None:
    document = {"name": "j", "model": {"preset": "llama-2-7b"}, "training": {"steps": 1}}
    spec = parse_job({**document, **changes}).to_spec("job-1", "default", 0.0)
    assert spec.training.builtin_layers is builtin


@pytest.mark.parametrize(
    ("changes", "splits"),
    [
        ({}, True),
        ({"run": {"command": ["python", "train.py"]}}, False),
        ({"training": {"steps": 1, "schedule": "auto", "micro_batches": 1024}}, True),
        ({"training": {"steps": 1, "schedule": "auto", "micro_batches": 1025}}, False),
    ],
)
def test_only_the_built_in_worker_is_given_orders_and_none_that_its_environment_cannot_hold(changes, splits):
    document = {"name": "j", "model": {"preset": "llama-2-7b"}, "training": {"steps": 1, "schedule": "auto"}}
    spec = parse_job({**document, **changes}).to_spec("job-1", "default", 0.0)
    assert spec.training.schedule is Schedule.AUTO
    assert spec.training.splits_backward is splits
