"""What has had its time: log lines beyond the newest of a job, answers to Idempotency-Keys of yesterday, measurements
of links that nobody goes by, and rows of the audit log that nobody has to keep any more."""

from __future__ import annotations

from service import limits
from service.control.leader import Leadership
from service.db import agent_queries, control_queries
from service.db.repositories import audit, link_tests
from service.services import Services

LOG_LINES_KEPT = 20_000
"""Of each job, the newest."""
KEY_KEPT_S = 24 * 3600.0
LINK_TESTS_KEPT_S = 48 * 3600.0
"""Measurements of links: the budget of a day is counted from them."""


async def prune(services: Services, leadership: Leadership) -> None:
    """Drop it. Raises FencedError where another instance leads."""
    before_s = services.clock.now() - KEY_KEPT_S
    await leadership.write(lambda session: agent_queries.drop_oldest_lines(session, LOG_LINES_KEPT))
    await leadership.write(lambda session: control_queries.drop_old_keys(session, before_s))
    measured_before_s = services.clock.now() - max(LINK_TESTS_KEPT_S, services.settings.link_max_age_s)
    await leadership.write(lambda session: link_tests.drop_ended_before(session, measured_before_s))
    audited_before_s = services.clock.now() - services.settings.audit_retention_s
    at_once = limits.AUDIT_DROPPED_AT_ONCE
    while (
        await leadership.write(lambda session: audit.drop_before(session, audited_before_s, at_once))
        == at_once
    ):
        pass
