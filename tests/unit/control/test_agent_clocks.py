"""In which order an agent's words were sent: by the answer that it has read; of an agent of before by its clock, where
late copies change nothing and a clock that was set back is believed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.protocol import Heartbeat
from service.agent_clocks import LATE_S, is_next, newest
from service.db.records import AgentRecord

AGENT = AgentRecord(
    agent_id="agent",
    token_id="token",
    agent_version="1",
    boot_id="life",
    reports_stored=0,
    clock_offset_s=-100.0,
    joined_at_s=0.0,
    heartbeat_at_s=1000.0,
)
"""It was heard last at 900 s by its own clock."""


def after(clock_s: float, boot_id: str = "life", at_s: float = 1010.0) -> AgentRecord:
    """The agent once a word of that life and clock has come."""
    boot, offset_s = newest(AGENT, boot_id, clock_s, at_s)
    return replace(AGENT, boot_id=boot, clock_offset_s=offset_s, heartbeat_at_s=at_s)


def by_clock(agent: AgentRecord, beat: Heartbeat) -> bool:
    """Of an agent that does not say which answer it has read."""
    return is_next(agent, beat, None)


def sent(clock_s: float, boot_id: str = "life") -> Heartbeat:
    return Heartbeat(agent_id="agent", boot_id=boot_id, clock_s=clock_s)


@pytest.mark.parametrize("late_s", [0.0, 1.0, LATE_S / 2, LATE_S - 0.01])
@pytest.mark.parametrize("boot_id", ["life", "life-before"])
def test_after_a_late_copy_older_words_are_as_old_as_before(late_s: float, boot_id: str) -> None:
    agent = after(900.0 - late_s, boot_id)
    assert not by_clock(agent, sent(900.0 - late_s, boot_id))
    assert not by_clock(agent, sent(899.99))
    assert by_clock(agent, sent(900.01))


def test_a_later_word_is_the_newest_also_of_another_life() -> None:
    assert by_clock(after(905.0), sent(905.1))
    assert not by_clock(after(905.0), sent(904.9))
    assert not by_clock(after(905.0, "next-life"), sent(905.1))
    assert by_clock(after(905.0, "next-life"), sent(905.1, "next-life"))


def test_a_clock_that_was_set_back_by_more_than_copies_are_late_is_believed() -> None:
    agent = after(900.0 - LATE_S - 1.0)
    assert by_clock(agent, sent(900.0 - LATE_S))


@pytest.mark.parametrize("clock_s", [900.0 - 2 * LATE_S, 899.0, 900.0, 905.0, 900.0 + 2 * LATE_S])
@pytest.mark.parametrize("boot_id", ["life", "life-before"])
def test_the_next_is_who_has_read_the_last_answer_whatever_its_clock_says(
    clock_s: float, boot_id: str
) -> None:
    beat = sent(clock_s, boot_id)
    assert is_next(AGENT, beat, AGENT.heartbeat_at_s)
    for other_s in (0.0, AGENT.heartbeat_at_s - 1e-6, AGENT.heartbeat_at_s + 1e-6):
        assert not is_next(AGENT, beat, other_s)
