"""What a caller may not learn of others: their jobs' ids in the words of the planner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scheduler.reasons import Reason
from scheduler.snapshot import Snapshot
from service.db.scope import Scope

OTHERS = "another project's job"


def hider(snapshot: Snapshot, scope: Scope) -> Callable[[str], str]:
    """A function that takes the ids of jobs outside of the scope out of a text."""
    specs = [job.spec for job in snapshot.waiting]
    specs += [job.spec for job in snapshot.running]
    specs += [promise.spec for promise in snapshot.promised]
    hidden = [spec.job_id for spec in specs if not scope.covers(spec.project)]

    def hide(text: str) -> str:
        for job_id in hidden:
            text = text.replace(job_id, OTHERS)
        return text

    return hide


def hide_in(reasons: tuple[Reason, ...], hide: Callable[[str], str]) -> tuple[Reason, ...]:
    """The same for the details of reasons."""
    return tuple(replace(reason, detail=hide(reason.detail)) for reason in reasons)
