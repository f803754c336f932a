"""Whoever looks at a job with a codec is told that it changes what is learned."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.spec.job import parse_job
from service.cli.job_tables import codec_text, lateness_text, updates_text


def completed(**parallelism: Any) -> dict[str, Any]:
    job = {
        "name": "j", "model": {"preset": "llama-2-7b"}, "training": {"steps": 1}, "parallelism": parallelism,
    }  # fmt: skip
    return parse_job(job).completed()


def test_a_codec_is_told_with_its_effect_and_no_codec_is_not() -> None:
    text = codec_text(completed(codec={"mapl": {"rank": 64}}))

    assert text == "mapl, 64 of 4096 numbers a token between regions; it changes what is learned"
    assert codec_text(completed()) is None


@pytest.mark.parametrize("rule", ["paci", "2bw", "prediction", "stashing"])
def test_every_rule_of_updates_is_told_with_what_it_does(rule: str) -> None:
    job = {"run": {"builtin": "gpt", "updates": {"rule": rule, "every": 4, "error_feedback": 0.0}}}
    text = updates_text(job)
    assert text is not None
    assert text.startswith(f"{rule}, each 4 micro-batches: ")
    assert "changes what is learned" in text
    assert updates_text({"run": {"builtin": "gpt"}}) is None


def test_drift_is_told_with_its_bound_and_what_was_taken_back() -> None:
    late = {"drift": 3, "drift_bound": 5, "rolled_back": 0}

    text = lateness_text(late)

    assert text == "at most 3 updates between a forward and its backward (bound 5)"
    assert lateness_text({**late, "rolled_back": 2}) == f"{text}; 2 updates taken back"
    assert lateness_text(dict.fromkeys(late)) is None
