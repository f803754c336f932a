"""The jobs that are shipped as examples are jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.spec.job import parse_job
from scheduler.spec.support import unsupported

JOBS = sorted((Path(__file__).parents[3] / "deploy" / "examples" / "jobs").glob("*.yaml"))


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_every_example_can_be_submitted(path: Path) -> None:
    job = parse_job(path.read_text(encoding="utf-8"), path.name)
    assert unsupported(job) == []
