"""What has had its time: log lines beyond the newest of a job, and answers to Idempotency-Keys of yesterday."""

from __future__ import annotations

from service.control.leader import Leadership
from service.db import agent_queries, control_queries
from service.services import Services

LOG_LINES_KEPT = 20_000
"""Of each job, the newest."""
KEY_KEPT_S = 24 * 3600.0


async def prune(services: Services, leadership: Leadership) -> None:
    """Drop it. Raises FencedError where another instance leads."""
    before_s = services.clock.now() - KEY_KEPT_S
    await leadership.write(lambda session: agent_queries.drop_oldest_lines(session, LOG_LINES_KEPT))
    await leadership.write(lambda session: control_queries.drop_old_keys(session, before_s))
