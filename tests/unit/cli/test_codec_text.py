"""Whoever looks at a job with a codec is told that it changes what is learned."""

from __future__ import annotations

from typing import Any

from scheduler.spec.job import parse_job
from service.cli.job_tables import codec_text


def completed(**parallelism: Any) -> dict[str, Any]:
    job = {
        "name": "j", "model": {"preset": "llama-2-7b"}, "training": {"steps": 1}, "parallelism": parallelism,
    }  # fmt: skip
    return parse_job(job).completed()


def test_a_codec_is_told_with_its_effect_and_no_codec_is_not() -> None:
    text = codec_text(completed(codec={"mapl": {"rank": 64}}))

    assert text == "mapl, 64 of 4096 numbers a token between regions; it changes what is learned"
    assert codec_text(completed()) is None
