"""In which order an agent's words were sent: copies of a request may come late, and in any order.

An agent sends one heartbeat after the other, and says with each which answer it has read last. So its clock, which may
be set forward and back, decides nothing.

An agent of before does not say that, and its order is that of its own clock. Its row holds the life and the clock of
its newest word. A late copy changes neither, else a second one would look like news after it. The clock is stored as
its distance from the server's at the last word of any age.
"""

from __future__ import annotations

from agents.protocol import Heartbeat
from service.db.records import AgentRecord

ROUNDING_S = 1e-5
"""Of sums of epoch times: two heartbeats of an agent are never so close."""
LATE_S = 180.0
"""No copy comes later than that: a clock that is further behind was set back. One that was set back by less is taken
for late until it has caught up. Where one was set forward by more, a copy from before looks like a clock that was set
back, and a second one like news: agents that say which answer they have read are spared that."""


def is_next(agent: AgentRecord, beat: Heartbeat, answered_s: float | None) -> bool:
    """Whether the agent has read no answer since it sent the beat; False also where that cannot be told.

    Only then does its silence about a process say anything: a beat that was delayed on the way does not know what has
    been started since. And only then does the agent take the answer for news: one to a late copy reaches nobody.

    `answered_s` is the time of the last answer that the agent had read, 0 before the first; None for an agent of
    before, which does not say. An answer has the time at which its beat is stored, so where that of the newest is the
    same there has been no other to read. After a lost answer the first beat is not the next, and the second is.
    """
    if answered_s is not None:
        return agent.heartbeat_at_s == answered_s
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
