"""Reports on their way: in order, bounded, and steps never given up."""

from __future__ import annotations

from collections.abc import Sequence

from agents.backlog import BATCH_REPORTS, next_batch, shed
from agents.protocol import LogReport, Report
from agents.state import Unsent
from tests.unit.agents.builders import busy, lines, step


def unsent(reports: Sequence[Report], size_bytes: int = 100) -> dict[int, Unsent]:
    return {report.seq: Unsent(report, size_bytes) for report in reports}


def test_a_batch_is_the_oldest_in_order_within_its_bounds() -> None:
    waiting = unsent([step(3, key="b/0"), step(1), step(2)])
    batch = next_batch(waiting, max_bytes=200)
    assert [report.seq for report in batch.reports] == [1, 2]
    assert batch.waiting_keys == {"b/0"}
    assert len(next_batch(unsent([step(n + 1) for n in range(3000)]), 10**9).reports) == BATCH_REPORTS


def test_one_report_larger_than_the_bound_still_goes() -> None:
    batch = next_batch(unsent([lines(1), step(2)], size_bytes=10_000), max_bytes=10)
    assert [report.seq for report in batch.reports] == [1]


def test_nothing_is_left_out_while_there_is_room() -> None:
    assert shed(unsent([lines(1), step(2)]), max_bytes=200) is None


def test_log_lines_go_first_then_busy_fractions_and_steps_never() -> None:
    reports = [
        step(1),
        lines(2, "a", "b"),
        busy(3),
        lines(4, "c", first_line=2),
        step(5),
        lines(6, key="b/0"),
    ]
    some = shed(unsent(reports), max_bytes=500)
    assert some is not None
    assert some.dropped == (2, 4, 6, 3), "logs, oldest first; then busy"
    everything = shed(unsent(reports), max_bytes=100)
    assert everything is not None
    assert set(everything.dropped) == {2, 3, 4, 6}
    assert shed(unsent([step(1), step(2)]), max_bytes=1) is None


def test_what_was_left_out_is_said_in_its_place() -> None:
    reports = [lines(7, "a", "b", first_line=40), lines(8, "c", first_line=42)]
    gone = shed(unsent(reports), max_bytes=100)
    assert gone is not None
    (marker,) = gone.markers
    assert isinstance(marker, LogReport)
    assert (marker.seq, marker.first_line, gone.lines) == (7, 40, 3)
    assert "3 lines left out" in marker.lines[0]
