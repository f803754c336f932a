"""How a job says that it wants to learn: optimizer, rate, clipping, updates within an iteration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import presets
from scheduler.cluster import Cluster
from scheduler.evaluate import evaluate
from scheduler.job import WEIGHTS_ALONE, WeightVersions
from scheduler.placement import Cut, Segment
from scheduler.profile import stage_profiles
from scheduler.spec.issues import SpecError
from scheduler.spec.job import JobDocument, accepted_job, parse_job

JOB: dict[str, Any] = {
    "name": "tiny",
    "model": {"layers": 4, "hidden": 64, "heads": 4, "vocab": 256, "seq_len": 32},
    "training": {"steps": 100, "micro_batches": 8},
}


def job(**run: Any) -> JobDocument:
    return parse_job({**JOB, "run": {"builtin": "gpt", **run}})


def test_it_is_kept_whole() -> None:
    run = {
        "optimizer": "muon",
        "learning_rate": 0.01,
        "rate_schedule": {"warmup_steps": 10, "decay": "cosine", "final": 0.1},
        "clip_norm": 1.0,
        "ready_first": True,
        "seed": 3,
    }
    completed = job(**run).completed()
    assert completed["run"] == {"builtin": "gpt", **run}
    assert parse_job(completed) == parse_job(parse_job(completed).completed())


@pytest.mark.parametrize(
    ("run", "pointer", "said"),
    [
        (
            {"rate_schedule": {"warmup_steps": 101}},
            "/run/rate_schedule/warmup_steps",
            "at most training.steps = 100",
        ),
        ({"rate_schedule": {"decay": "step"}}, "/run/rate_schedule/decay", "cosine"),
        ({"optimizer": "sgd"}, "/run/optimizer", "muon"),
        ({"clip_norm": 0}, "/run/clip_norm", "greater than 0"),
        ({"clip_norm": 1.0, "updates": {"rule": "paci"}}, "/run/clip_norm", "nothing"),
        ({"updates": {"rule": "paci", "every": 3}}, "/run/updates/every", "training.micro_batches = 8"),
        ({"updates": {"rule": "paci", "error_feedback": 1.0}}, "/run/updates/error_feedback", "2bw"),
        ({"updates": {"every": 2}}, "/run/updates/rule", ""),
        ({"ready_first": "yes"}, "/run/ready_first", "boolean"),
    ],
)
def test_what_cannot_be_is_refused_by_field(run: dict[str, Any], pointer: str, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        job(**run)
    (issue,) = refused.value.issues
    assert issue.pointer == pointer
    assert said in issue.expected


def test_a_command_of_its_own_learns_as_it_likes() -> None:
    with pytest.raises(SpecError, match="clip_norm"):
        parse_job({**JOB, "run": {"command": ["train"], "clip_norm": 1.0}})


def test_what_a_command_may_not_have_is_refused_once_and_shown_as_it_was_written() -> None:
    run = {"command": ["train"], "clip_norm": 1.0, "updates": {"rule": "paci"}}
    with pytest.raises(SpecError) as refused:
        parse_job({**JOB, "run": run})
    assert [(issue.pointer, issue.value) for issue in refused.value.issues] == [
        ("/run/clip_norm", 1.0),
        ("/run/updates", {"rule": "paci"}),
    ]


@pytest.mark.parametrize(
    ("stages", "schedule", "every", "needed"),
    [
        (4, "1f1b", 2, 3),
        ("3..4", "auto", 1, 2),
        (1, "gpipe", 4, 7),
        (4, "1f1b", 4, None),
        ("2..4", "slack-1f1b", 1, None),
        ("auto", "1f1b", 1, None),
        (2, "gpipe", 8, None),
    ],
)
def test_two_versions_that_cannot_serve_the_fewest_stages_are_refused_at_once(
    stages: str | int, schedule: str, every: int, needed: int | None
) -> None:
    document = {
        **JOB,
        "training": {**JOB["training"], "schedule": schedule},
        "parallelism": {"stages": stages},
        "run": {"builtin": "gpt", "updates": {"rule": "2bw", "every": every}},
    }
    if needed is None:
        assert parse_job(document).is_builtin
        return
    with pytest.raises(SpecError) as refused:
        parse_job(document)
    (issue,) = refused.value.issues
    assert issue.pointer == "/run/updates/every"
    assert f"at least {needed}" in issue.expected


def test_where_weights_change_within_an_iteration_backwards_stay_whole() -> None:
    """An update between the two parts of a backward would give it weights of two versions; 2bw refuses that."""
    document = {**JOB, "training": {**JOB["training"], "schedule": "auto"}}
    for run, splits in (({}, True), ({"updates": {"rule": "2bw", "every": 4}}, False)):
        spec = parse_job({**document, "run": {"builtin": "gpt", **run}}).to_spec("a", "p", 0.0)
        assert spec.training.splits_backward is splits


def test_the_planner_puts_no_more_in_flight_than_two_versions_serve() -> None:
    def caps(**run: Any) -> tuple[int, ...]:
        document = {**JOB, "training": {"steps": 1, "micro_batches": 64, "schedule": "slack-1f1b"}}
        spec = parse_job({**document, "run": {"builtin": "gpt", **run}}).to_spec("a", "p", 0.0)
        gpu = presets.gpu("H100")
        cluster = Cluster(regions={}, links={}, gpu_types={gpu.name: gpu}, pools={})
        segments = [Segment(region, gpu.name, 2, 1) for region in ("a", "b")]
        found = evaluate(spec, cluster, segments, [Cut("a", "b", 1e9, 0.1)])
        assert found.fits
        return found.placement.window

    assert max(caps()) > 9
    assert max(caps(updates={"rule": "2bw", "every": 8})) == 9


@pytest.mark.parametrize(
    ("updates", "versions"),
    [
        (None, WEIGHTS_ALONE),
        ({"rule": "paci"}, WeightVersions(held_bytes=12.0)),
        ({"rule": "2bw"}, WeightVersions(held_bytes=4.0, most_in_flight=2)),
        ({"rule": "2bw", "error_feedback": 1.0}, WeightVersions(held_bytes=8.0, most_in_flight=2)),
        ({"rule": "prediction"}, WeightVersions(held_bytes=4.0)),
        ({"rule": "stashing"}, WeightVersions(in_flight_bytes=4.0)),
    ],
)
@pytest.mark.parametrize(
    ("training", "own_copies_bytes"),
    [
        ({"dtype": "fp32"}, 0.0),
        ({"dtype": "bf16"}, 2.0),
        ({"dtype": "bf16", "recompute": "full"}, 0.0),
    ],
)
def test_the_planner_counts_the_weights_that_a_rule_keeps(
    updates: dict[str, Any] | None,
    versions: WeightVersions,
    training: dict[str, Any],
    own_copies_bytes: float,
) -> None:
    document = {**JOB, "training": {**JOB["training"], **training}}
    plain, wanted = (
        parse_job({**document, "run": {"builtin": "gpt", **run}}).to_spec("a", "p", 0.0)
        for run in ({}, {} if updates is None else {"updates": updates})
    )
    if updates is not None:
        versions = replace(versions, in_flight_bytes=versions.in_flight_bytes + own_copies_bytes)
    assert wanted.training.versions == versions
    gpus = (presets.gpu("H100"),) * 2
    alone = stage_profiles(job().to_spec("a", "p", 0.0), gpus)
    profiles = zip(stage_profiles(wanted, gpus), stage_profiles(plain, gpus), alone, strict=True)
    for with_rule, without, bare in profiles:
        weights = bare.weight_bytes / 18
        assert with_rule.weight_bytes == pytest.approx(without.weight_bytes + versions.held_bytes * weights)
        assert with_rule.inflight_bytes == pytest.approx(
            without.inflight_bytes + versions.in_flight_bytes * weights
        )


def test_a_rule_that_came_later_does_not_concern_a_job_that_was_accepted() -> None:
    stored = job().completed()
    stored["run"] |= {"clip_norm": 1.0, "updates": {"rule": "paci", "every": 3}}
    with pytest.raises(SpecError):
        parse_job(stored)
    assert accepted_job(stored).to_spec("a", "p", 0.0).training.micro_batches == 8


def test_what_is_no_job_is_none_however_it_was_stored() -> None:
    with pytest.raises(SpecError, match="model"):
        accepted_job({"name": "tiny"})
