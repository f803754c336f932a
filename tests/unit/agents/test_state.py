"""The agent's state is the fold of its journal: after a restart it is the same, whatever happened before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import state as state_module
from agents.errors import JournalError
from agents.journal import Journal
from agents.protocol import ProcessState
from agents.state import AgentState, LogPosition, ProcessRecord
from tests.unit.agents.builders import lines, step


def record(key: str = "a/0", **changes: object) -> ProcessRecord:
    values = {"key": key, "node_id": "n", "gpu_indices": (0,), "grace_s": 1.0, **changes}
    return ProcessRecord.model_validate(values)


def opened(path: Path) -> AgentState:
    return AgentState(Journal(path))


def everything(state: AgentState) -> tuple[object, ...]:
    reports = {seq: unsent.report for seq, unsent in state.unsent.items()}
    return state.next_seq, state.stored, dict(state.processes), list(state.tombstones), reports


@pytest.fixture
def state(tmp_path: Path) -> Iterator[AgentState]:
    opened_state = opened(tmp_path / "journal")
    yield opened_state
    opened_state.close()


def test_numbers_go_on_after_a_restart_even_when_everything_was_stored(tmp_path: Path) -> None:
    first = opened(tmp_path / "journal")
    first.update(record(), [step(1), step(2)])
    first.confirm(2)
    first.close()
    second = opened(tmp_path / "journal")
    assert (second.next_seq, second.stored, second.unsent) == (3, 2, {})
    second.close()


def test_reports_and_read_positions_are_one_record(tmp_path: Path) -> None:
    """A torn record takes both: what is read again is then numbered again, not told twice."""
    path = tmp_path / "journal"
    first = opened(path)
    first.update(record(report_offset=10), [step(1)])
    first.update(record(report_offset=20, log=LogPosition(offset=5, line=1)), [step(2), lines(3)])
    first.close()
    path.write_bytes(path.read_bytes()[:-1])
    second = opened(path)
    assert second.processes["a/0"].report_offset == 10
    assert sorted(second.unsent) == [1]
    assert second.next_seq == 2
    second.close()


def test_confirmed_reports_are_let_go_and_an_old_confirmation_changes_nothing(state: AgentState) -> None:
    state.update(record(), [step(1), step(2), step(3)])
    state.confirm(2)
    state.confirm(1)
    assert sorted(state.unsent) == [3]
    assert state.stored == 2


def test_tombstones_are_bounded_the_newest_kept(state: AgentState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "TOMBSTONES", 3)
    for number in range(5):
        state.begin(record(f"a/{number}"))
        state.forget([f"a/{number}", "never-heard-of"])
    assert list(state.tombstones) == ["a/2", "a/3", "a/4"]
    assert state.processes == {}


def test_a_journal_of_another_version_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.append([{"is": "snapshot", "version": 99, "state": {}}])
    with pytest.raises(JournalError, match="version 99; this agent reads version 1"):
        AgentState(journal)
    journal.close()


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(0, 3)),
        st.tuples(st.just("reports"), st.integers(0, 3)),
        st.tuples(st.just("confirm"), st.integers(0, 30)),
        st.tuples(st.just("end"), st.integers(0, 3)),
        st.tuples(st.just("forget"), st.integers(0, 3)),
        st.tuples(st.just("shed"), st.integers(0, 3)),
        st.tuples(st.just("compact"), st.just(0)),
    ),
    max_size=20,
).map(lambda changes: [("reports", 0), ("reports", 1), *changes])


@given(changes=CHANGES)
@settings(deadline=None, max_examples=50)
def test_a_restart_at_any_point_gives_the_same_state(
    changes: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("state") / "journal"
    state = opened(path)
    highest = 0
    for kind, number in changes:
        key = f"a/{number}"
        match kind:
            case "begin":
                state.begin(record(key))
            case "reports":
                next_seq = state.next_seq
                state.update(
                    record(key, report_offset=next_seq), [step(next_seq, key=key), lines(next_seq + 1)]
                )
            case "confirm":
                state.confirm(min(number, state.next_seq - 1))
            case "end":
                state.update(record(key, state=ProcessState.EXITED, exit_code=1, last_lines=("x",)))
            case "forget":
                state.forget([key])
            case "shed":
                logs = [seq for seq, unsent in state.unsent.items() if unsent.report.kind == "log"]
                state.shed(logs, [lines(logs[0], "left out")] if logs else [])
            case "compact":
                state._compact_at_bytes = 0
                state.compact()
        assert state.next_seq >= highest, "numbers go back"
        highest = state.next_seq
        again = opened(path)
        assert everything(again) == everything(state)
        again.close()
    state.close()
