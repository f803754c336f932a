"""What this version cannot honour is refused with its reason, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.spec.job import parse_job
from scheduler.spec.support import unknown_regions, unsupported


def job(**changes: Any) -> dict[str, Any]:
    legal = {"name": "small", "model": {"preset": "llama-2-7b"}, "training": {"steps": 10}}
    return {**legal, **changes}


COMMAND = {"command": ["python", "train.py"]}
SHAPE = {"layers": 2, "hidden": 64, "heads": 2, "vocab": 256, "seq_len": 32, "gated_mlp": True}


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"run": {**COMMAND, "image": "registry/image:1"}}, "/run/image"),
        ({"run": {**COMMAND, "secrets": {"T": "vault:path"}}}, "/run/secrets/T"),
        ({"run": COMMAND, "elasticity": "resize"}, "/elasticity"),
        ({"checkpoint": {"uri": "memory://bucket"}}, "/checkpoint/uri"),
        ({"parallelism": {"tensor": 2}}, "/parallelism/tensor"),
        ({"parallelism": {"tensor": 2, "data": 1.5}}, "/parallelism/data"),
        ({"training": {"steps": 1, "dtype": "fp16"}}, "/training/dtype"),
        ({"model": {"preset": "gpt-3 1.3b"}}, "/model/gated_mlp"),
        ({"model": {**SHAPE, "head_dim": 31}}, "/model/head_dim"),
        ({"checkpoint": {"uri": "file://checkpoints"}}, "/checkpoint/uri"),
        ({"checkpoint": {"uri": "s3://"}}, "/checkpoint/uri"),
        ({"checkpoint": {"uri": "gs:///folder"}}, "/checkpoint/uri"),
        ({"run": {"command": ["", "train.py"]}}, "/run/command/0"),
    ],
)
def test_the_service_says_what_it_cannot_honour(changes: dict[str, Any], pointer: str) -> None:
    assert pointer in {issue.pointer for issue in unsupported(parse_job(job(**changes)))}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_wait": "6h", "deadline": "2026-12-24T00:00:00Z", "budget_usd": 5},
        {"data": [{"uri": "s3://corpus", "size": "1GB", "regions": ["eu-1"]}], "placement": {"home": "eu-1"}},
        {"run": COMMAND, "parallelism": {"tensor": 8, "data": 2}, "elasticity": "restart"},
        {"run": {**COMMAND, "secrets": {"T": "file:/run/secrets/t", "U": "env:U"}}},
        {"checkpoint": {"uri": "file:///var/checkpoints"}, "training": {"steps": 1, "dtype": "fp32"}},
        {"checkpoint": {"uri": "file://localhost/var/checkpoints"}},
        {"checkpoint": {"uri": "s3://bucket/jobs", "keep": 1000}},
        {"run": COMMAND, "model": {"preset": "gpt-3 1.3b"}},
    ],
)
def test_what_can_be_honoured_is_not_refused(changes: dict[str, Any]) -> None:
    assert unsupported(parse_job(job(**changes))) == []


def test_a_region_that_no_one_has_is_named() -> None:
    document = parse_job(job(placement={"regions": ["eu-*", "mars-1"], "exclude": ["eu-west-1"]}))
    found = unknown_regions(document, ["eu-west-1", "us-east-1"])
    assert [(issue.pointer, issue.value) for issue in found] == [("/placement/regions/1", "mars-1")]


def test_a_home_and_regions_of_data_that_no_one_has_are_named() -> None:
    data = [{"uri": "s3://c", "size": "1GB", "regions": ["us-east-1", "mars-2"]}]
    found = unknown_regions(parse_job(job(placement={"home": "mars-1"}, data=data)), ["us-east-1"])
    assert {(issue.pointer, issue.value) for issue in found} == {
        ("/placement/home", "mars-1"),
        ("/data/0/regions/1", "mars-2"),
    }
