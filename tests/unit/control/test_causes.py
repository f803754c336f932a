"""Why a gang ended: the root is blamed, whatever followed from it."""

from __future__ import annotations

import pytest

from service.causes import CAUSES, Kind, cause_of, root_failure
from service.db.records import ProcessRecord


def _process(rank: int = 0, **changes: object) -> ProcessRecord:
    values: dict[str, object] = {
        "key": f"al/{rank}",
        "project": "p",
        "allocation_id": "al",
        "job_id": "j",
        "node_id": "node-a",
        "rank": rank,
        "stage": rank,
        "region": "r",
        "launch": {},
        "desired": True,
        "state": "ready",
        "exit_code": None,
        "cause": None,
        "detail": None,
        "last_lines": [],
        "busy_fraction": None,
        "version": 1,
    }
    return ProcessRecord(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"state": "exited", "exit_code": 0}, None),
        ({"state": "ready"}, None),
        ({"state": "pending"}, None),
        ({"state": "stopped", "desired": False, "exit_code": 0}, None),
        ({"state": "stopped", "desired": True, "cause": "lease-expired"}, "lease-expired"),
        ({"state": "stopped", "desired": True}, "agent-stopped"),
        ({"state": "lost"}, "node-lost"),
        ({"state": "lost", "cause": "forgotten-by-agent"}, "forgotten-by-agent"),
        ({"state": "failed-to-start"}, "failed-to-start"),
        ({"state": "failed-to-start", "cause": "not-executable"}, "failed-to-start"),
        ({"state": "failed-to-start", "cause": "secret-missing"}, "failed-to-start"),
        ({"state": "failed-to-start", "cause": "start-failed"}, "start-failed"),
        ({"state": "failed-to-start", "cause": "never-started"}, "never-started"),
        ({"state": "exited", "exit_code": 1}, "stage-failed"),
        ({"state": "exited", "exit_code": 1, "cause": "crashed"}, "stage-failed"),
        ({"state": "exited", "exit_code": -9}, "stage-died"),
        ({"state": "exited", "exit_code": -6}, "stage-aborted"),
        ({"state": "exited", "exit_code": 10, "cause": "port-taken"}, "port-taken"),
        ({"state": "exited", "exit_code": 11, "cause": "rendezvous-timeout"}, "rendezvous-timeout"),
        ({"state": "exited", "exit_code": 13, "cause": "out-of-memory"}, "out-of-memory"),
    ],
)
def test_how_a_process_ended_is_told_apart(changes: dict[str, object], name: str | None) -> None:
    cause = cause_of(_process(**changes))
    assert (None if cause is None else cause.name) == name


def test_the_root_is_the_first_in_the_table_whatever_its_rank() -> None:
    gang = [
        _process(0, state="exited", exit_code=12, cause="peer-lost"),
        _process(1, state="exited", exit_code=-6),
        _process(2, state="exited", exit_code=1, last_lines=["ValueError: 7"]),
        _process(3, state="exited", exit_code=12, cause="peer-lost"),
    ]
    failure = root_failure(gang, "peer-lost")
    assert failure is not None
    assert (failure.cause.name, failure.stage) == ("stage-failed", 2)
    assert failure.last_lines == ("ValueError: 7",)
    assert "rank 2" in failure.detail
    assert "exit code 1" in failure.detail


def test_what_was_noticed_first_is_blamed_over_its_consequences() -> None:
    failure = root_failure([_process(0, state="exited", exit_code=12, cause="peer-lost")], "node-lost")
    assert failure is not None
    assert failure.cause.name == "node-lost"


def test_a_gang_that_was_told_to_end_has_not_failed() -> None:
    assert root_failure([_process(0, state="exited", exit_code=1)], "drained") is None
    assert root_failure([_process(0, state="exited", exit_code=0)], None) is None


def test_what_cannot_get_better_is_not_tried_again() -> None:
    assert {name for name, cause in CAUSES.items() if cause.most_retries == 0} == {
        "out-of-memory",
        "invalid-plan",
        "corpus-missing",
        "corpus-too-short",
        "corpus-differs",
        "checkpoint-unusable",
    }
    assert {cause.kind for cause in CAUSES.values()} == set(Kind)
    assert len({cause.code for cause in CAUSES.values()}) == len(CAUSES)
