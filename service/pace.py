"""How often agents beat: as often as is useful while they are few, and never more of them a second than the budget.

    interval = max(BACE_HEARTBEAT_INTERVAL_S, agents / BACE_HEARTBEATS_PER_S), at most lease / 3
    lost     = silent for max(BACE_NODE_LOST_AFTER_S, BACE_MISSED_HEARTBEATS × interval)

The lease and the inequality that keeps two generations of a stage apart (`settings`) do not depend on the interval: a
longer one only lengthens the silence after which a node is lost.
"""

from __future__ import annotations

from service.db import agent_queries
from service.db.session import Session
from service.settings import Settings

LOOK_EVERY_S = 5.0
"""The number of agents is counted anew so often."""
BEATS_A_LEASE = 3.0
"""An agent may miss two heartbeats and still keep its workers."""


class Pace:
    """Of one process: how many agents beat, as it saw last."""

    def __init__(self) -> None:
        self._agents = 0
        self._looked_at_s: float | None = None

    def look(self, session: Session, settings: Settings, now_s: float) -> None:
        """Count the agents that are heard, if that was not done just now."""
        if self._looked_at_s is None or not 0.0 <= now_s - self._looked_at_s < LOOK_EVERY_S:
            self._agents = agent_queries.count_heard_since(session, now_s - settings.node_lost_after_s)
            self._looked_at_s = now_s

    def interval_s(self, settings: Settings) -> float:
        """What agents are told."""
        return heartbeat_interval_s(settings, self._agents)


def heartbeat_interval_s(settings: Settings, agents: int) -> float:
    """Seconds between the heartbeats of one of so many agents."""
    least_s = settings.heartbeat_interval_s
    return max(least_s, min(agents / settings.heartbeats_per_s, settings.lease_s / BEATS_A_LEASE))


def lost_after_s(settings: Settings, interval_s: float) -> float:
    """After so long a silence a node is lost: it has missed as many heartbeats as it may not, and its workers must
    have ended by themselves."""
    return max(settings.node_lost_after_s, settings.missed_heartbeats * interval_s)
