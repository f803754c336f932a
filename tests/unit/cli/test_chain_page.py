"""Where a job stands is told with what its stages run there."""

from __future__ import annotations

import pytest

from service.cli.job_tables import schedule_text

SEGMENTS = [{"stages": 2}, {"stages": 1}]


@pytest.mark.parametrize(
    ("schedule", "window", "expected"),
    [
        ("1f1b", [3, 2, 1], "1f1b"),
        ("generated", [4, 4, 2], "generated"),
        ("zb-v", [5, 4, 3, 3, 2, 1], "zb-v, 2 parts of the model on every stage"),
    ],
)
def test_more_than_one_part_of_the_model_on_a_stage_is_told(
    schedule: str, window: list[int], expected: str
) -> None:
    placement = {"segments": SEGMENTS, "cuts": [], "schedule": schedule, "window": window}
    assert schedule_text(placement) == expected
