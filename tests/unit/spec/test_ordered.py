"""What a job may not ask for together with a schedule that its workers are told in an order."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.job import ASKED_SCHEDULES, Schedule
from scheduler.spec.issues import SpecError
from scheduler.spec.job import parse_job

ORDERED = [each.value for each in ASKED_SCHEDULES if each.is_ordered]
SPLIT = [each.value for each in ASKED_SCHEDULES if each.splits]
TWO_A_RANK = [each.value for each in ASKED_SCHEDULES if each.parts > 1]


def document(schedule: str, **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": "tiny",
        "model": {"layers": 8, "hidden": 64, "heads": 4, "vocab": 256, "seq_len": 32},
        "training": {"steps": 100, "micro_batches": 8, "schedule": schedule},
        "parallelism": {"stages": 2},
        "run": {"builtin": "gpt"},
    }
    for section, fields in changes.items():
        made[section] = {**made.get(section, {}), **fields}
    return made


def issues(schedule: str, **changes: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        parse_job(document(schedule, **changes))
    return {issue.pointer: issue.expected for issue in caught.value.issues}


@pytest.mark.parametrize("schedule", [each.value for each in ASKED_SCHEDULES])
def test_every_schedule_can_be_asked_for_by_its_name(schedule: str) -> None:
    job = parse_job(document(schedule))
    spec = job.to_spec("job-1", "default", 0.0)
    assert spec.training.schedule is Schedule(schedule)
    assert spec.training.splits_backward
    assert parse_job(job.completed()) == parse_job(parse_job(job.completed()).completed())


@pytest.mark.parametrize("schedule", ORDERED)
def test_a_command_is_told_no_order(schedule: str) -> None:
    made = {**document(schedule), "run": {"command": ["python", "train.py"]}}
    with pytest.raises(SpecError) as caught:
        parse_job(made)
    assert [issue.pointer for issue in caught.value.issues] == ["/training/schedule"]
    assert "a command is told a window" in caught.value.issues[0].expected


@pytest.mark.parametrize("schedule", ORDERED)
def test_no_update_comes_within_an_order(schedule: str) -> None:
    found = issues(schedule, run={"updates": {"rule": "paci", "every": 4}})
    assert f"no update may come within {schedule}" in found["/run/updates"]


@pytest.mark.parametrize("schedule", TWO_A_RANK)
def test_a_codec_and_what_is_ready_first_are_for_a_line(schedule: str) -> None:
    found = issues(schedule, parallelism={"codec": {"mapl": {"rank": 8}}}, run={"ready_first": True})
    assert "neighbours in a line" in found["/parallelism/codec"]
    assert "the memory of" in found["/run/ready_first"]
    line = document("generated", parallelism={"codec": {"mapl": {"rank": 8}}}, run={"ready_first": True})
    assert parse_job(line)


@pytest.mark.parametrize("schedule", SPLIT)
def test_full_recompute_leaves_backwards_whole(schedule: str) -> None:
    found = issues(schedule, training={"recompute": "full"})
    assert f"{schedule} splits backwards" in found["/training/recompute"]


@pytest.mark.parametrize("schedule", ["interleaved", "looped-bfs", "hanayo", "auto"])
def test_others_may_recompute_all(schedule: str) -> None:
    assert parse_job(document(schedule, training={"recompute": "full"}))


@pytest.mark.parametrize("schedule", ORDERED)
def test_an_order_is_not_longer_than_a_worker_can_be_told(schedule: str) -> None:
    found = issues(schedule, training={"micro_batches": 1026})
    assert "at most 1024" in found["/training/micro_batches"]


@pytest.mark.parametrize(
    ("schedule", "changes", "pointer", "said"),
    [
        ("zb-v", {"parallelism": {"stages": 3}}, "/parallelism/stages", "model.layers a multiple of 6"),
        (
            "hanayo",
            {"model": {"layers": 7}, "parallelism": {"stages": "auto"}},
            "/parallelism/stages",
            "multiple of 2",
        ),
        ("zb-v", {"training": {"micro_batches": 3}}, "/training/micro_batches", "at least 2 × 2 ranks"),
        (
            "interleaved",
            {"training": {"micro_batches": 7}},
            "/training/micro_batches",
            "a multiple of 2 ranks",
        ),
    ],
)
def test_stages_without_an_order_are_named(
    schedule: str, changes: dict[str, Any], pointer: str, said: str
) -> None:
    assert said in issues(schedule, **changes)[pointer]


def test_one_number_of_stages_with_an_order_is_enough() -> None:
    assert parse_job(document("interleaved", parallelism={"stages": "1..8"}, training={"micro_batches": 7}))


def test_a_loop_stands_in_two_regions_at_most() -> None:
    def most(schedule: str, **rule: Any) -> int | None:
        spec = parse_job(document(schedule, placement=rule)).to_spec("job-1", "default", 0.0)
        return spec.placement.max_regions

    assert most("interleaved") == most("looped-bfs", max_regions=3) == 2
    assert most("interleaved", max_regions=1) == 1
    assert most("zb-v") is None
    assert most("zb-v", max_regions=3) == 3
