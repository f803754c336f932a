"""Jobs that move because time passes: gangs that do not get ready, and ends whose last reports never came.

Everything else moves with the news that causes it, in the transaction that stores it.
"""

from __future__ import annotations

from service import progress
from service.control.leader import Leadership
from service.db import control_queries
from service.db.session import Session
from service.lifecycle import ENDED_PROCESS_STATES, Moment
from service.progress import Rules
from service.services import Services

ACTOR = "reconciler"


async def reconcile(services: Services, leadership: Leadership) -> int:
    """Advance every job that is due; how many there were. Raises FencedError where another instance leads."""
    now_s, rules = services.clock.now(), services.rules()
    due = await services.db.read(lambda session: _due(session, now_s, rules))
    if due:
        await leadership.write(lambda session: _advance(session, now_s, rules))
    return len(due)


def _advance(session: Session, now_s: float, rules: Rules) -> None:
    for job_id in _due(session, now_s, rules):
        progress.advance(session, job_id, Moment(now_s, ACTOR), rules)


def _due(session: Session, now_s: float, rules: Rules) -> list[str]:
    return control_queries.jobs_due(
        session, created_before_s=now_s - rules.start_timeout_s, ended_states=ENDED_PROCESS_STATES
    )
