"""docs/jobs.md is the reference of the job file: no field of it is missing there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from scheduler.spec.job import JobDocument
from scheduler.spec.model import ModelSection
from scheduler.spec.sections import (
    CheckpointSection,
    ParallelismSection,
    PlacementSection,
    ProfileSection,
    RateScheduleSection,
    RunSection,
    StopSection,
    TrainingSection,
    UpdatesSection,
)

PAGE = Path(__file__).parents[3] / "docs" / "jobs.md"
REFUSED = {"image"}
"""In the grammar, and refused by every agent of this version."""


@pytest.mark.parametrize(
    "section",
    [
        JobDocument,
        ModelSection,
        TrainingSection,
        ParallelismSection,
        PlacementSection,
        CheckpointSection,
        StopSection,
        RateScheduleSection,
        UpdatesSection,
        RunSection,
        ProfileSection,
    ],
)
def test_every_field_of_a_job_is_on_the_page(section: type[BaseModel]) -> None:
    words = set(re.findall(r"[a-z_]+", PAGE.read_text(encoding="utf-8")))
    assert set(section.model_fields) - REFUSED <= words


def test_what_a_profile_must_have_is_on_the_page() -> None:
    fields = ProfileSection.model_fields
    assert len(fields) == 5
    assert all(field.is_required() for field in fields.values())
    _, _, section = PAGE.read_text(encoding="utf-8").partition("\n## profile\n")
    assert section.strip().startswith("All five are required.")
    assert [name for name in fields if f"`{name}`" not in section] == []
