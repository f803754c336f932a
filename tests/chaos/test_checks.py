"""The checkers of the chaos run find what they are there to find."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine

from service.db.tables import Base
from tests.chaos.checks import Ran, Rows, Verdict, double_runs, judge, read_witnesses, runs_after_cancel
from tests.chaos.client import Submission, job_document
from tests.chaos.faults import Sleep


def ran(generation: int, *stamps_s: float, rank: int = 0, pid: int = 1) -> Ran:
    return Ran("job-1", generation, rank, pid, stamps_s, 0.0)


def submission(name: str, *job_ids: str, **more: object) -> Submission:
    document = job_document(name, stages=1, steps=1, witnesses=Path("/nowhere"))
    return Submission(name, document, set(job_ids), **more)  # type: ignore[arg-type]


def empty_rows(tmp_path: Path) -> Rows:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    engine.dispose()
    return Rows(url)


def verdict_on(rows: Rows, *submissions: Submission) -> Verdict:
    return judge(submissions, rows, [], [])


def test_generations_one_after_the_other_are_well() -> None:
    assert double_runs([ran(1, 1.0, 2.0), ran(2, 3.0, 4.0), ran(2, 3.1, 4.2, rank=1)]) == []


def test_two_generations_at_once_are_found_whatever_their_ranks() -> None:
    assert len(double_runs([ran(1, 1.0, 3.5), ran(2, 3.0, 4.0, rank=1)])) == 1


def test_a_generation_that_goes_on_after_a_later_one_has_ended_is_found() -> None:
    assert len(double_runs([ran(1, 1.0, 9.0), ran(2, 3.0, 4.0)])) == 1


def test_a_rank_that_was_started_twice_is_found() -> None:
    assert len(double_runs([ran(1, 1.0, 2.0, pid=1), ran(1, 3.0, 4.0, pid=2)])) == 1


def test_what_runs_after_its_cancellation_was_read_is_found() -> None:
    cancelled = submission("a", "job-1", generation_at_cancel=1, seen_cancelled_at_s=5.0)
    assert runs_after_cancel([cancelled], [ran(1, 1.0, 4.9)]) == []
    assert len(runs_after_cancel([cancelled], [ran(1, 1.0, 5.1)])) == 1


def test_a_generation_after_the_cancellation_is_found() -> None:
    cancelled = submission("a", "job-1", generation_at_cancel=1)
    assert len(runs_after_cancel([cancelled], [ran(2, 1.0, 4.9)])) == 1


def test_an_acknowledged_job_that_is_not_there_is_lost(tmp_path: Path) -> None:
    verdict = verdict_on(empty_rows(tmp_path), submission("a", "job-1"), submission("never answered"))
    assert verdict.violations() == {"lost": ["a"]}


def test_one_name_in_two_rows_is_a_duplicate_and_so_are_two_answers_to_one_key(tmp_path: Path) -> None:
    rows = empty_rows(tmp_path)
    rows.jobs = [("job-1", "a", "succeeded", []), ("job-2", "a", "succeeded", [])]
    assert verdict_on(rows, submission("a", "job-1")).duplicated == ["a"]
    rows.jobs = [("job-1", "a", "succeeded", []), ("job-2", "b", "succeeded", [])]
    assert verdict_on(rows, submission("a", "job-1", "job-2")).duplicated == ["a"]


@pytest.mark.parametrize("state", ["queued", "running", "stopping", "failed", "rejected", "cancelled"])
def test_a_job_that_has_not_come_to_its_end_is_found(state: str, tmp_path: Path) -> None:
    rows = empty_rows(tmp_path)
    rows.jobs = [("job-1", "a", state, [])]
    assert len(verdict_on(rows, submission("a", "job-1")).not_ended) == 1


def test_only_the_waking_of_a_node_that_slept_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "job-1.1.0.77").write_text("1.0\n1.1\n20.1\n20.4\n")
    (tmp_path / "job-2.1.0.78").write_text("1.0\n1.1\n20.1\n22.4\n")
    (tmp_path / "job-3.1.0.79").write_text("1.0\n20.1\n")
    sleeps = [Sleep(frozenset({77, 78}), 20.0)]
    short, long, other = read_witnesses(tmp_path, sleeps)
    assert short.stamps_s == (1.0, 1.1)
    assert short.waking_s == pytest.approx(0.4)
    assert long.stamps_s == (1.0, 1.1, 20.1, 22.4)
    assert other.stamps_s == (1.0, 20.1)
