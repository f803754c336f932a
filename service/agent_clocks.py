"""In which order an agent's words were sent, by its own clock: copies of a request may come late, and in any order.

The row of an agent holds the life and the clock of its newest word. A late copy changes neither, else a second one
would look like news after it. The clock is stored as its distance from the server's at the last word of any age.
"""

from __future__ import annotations

from agents.protocol import Heartbeat
from service.db.records import AgentRecord

ROUNDING_S = 1e-5
"""Of sums of epoch times: two heartbeats of an agent are never so close."""
LATE_S = 180.0
"""No copy comes later than that: a clock that is further behind was set back. One that was set back by less is taken
for late until it has caught up."""


def is_next(agent: AgentRecord, beat: Heartbeat) -> bool:
    """Whether the beat was sent after the last one that was stored, by the agent's own clock and life.

    Only then does its silence about a process say anything: a beat that was delayed on the way does not know what has
    been started since. And only then does the agent take the answer for news: one to a late copy reaches nobody.
    """
    return agent.boot_id == beat.boot_id and _ahead_s(agent, beat.clock_s) > ROUNDING_S


def newest(agent: AgentRecord, boot_id: str | None, clock_s: float, at_s: float) -> tuple[str | None, float]:
    """Life and clock offset to store when a word of that life and clock has come at `at_s`."""
    ahead_s = _ahead_s(agent, clock_s)
    if agent.boot_id is not None and -LATE_S < ahead_s <= ROUNDING_S:
        return agent.boot_id, clock_s - ahead_s - at_s
    return boot_id, clock_s - at_s


def _ahead_s(agent: AgentRecord, clock_s: float) -> float:
    """Of the newest word."""
    return clock_s - (agent.heartbeat_at_s + agent.clock_offset_s)
