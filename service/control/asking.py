"""When a policy is asked: at every round while somebody waits, or, if it changes running jobs, when it may matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.job import Elasticity
from scheduler.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Seen:
    """What a decision goes by: capacity and what is held (a version), who waits, and the prices in force."""

    version: int
    waiting: frozenset[str]
    prices: Mapping[str, float | None]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Seen:
        return cls(
            snapshot.version,
            frozenset(job.spec.job_id for job in snapshot.waiting),
            {region: known.at(snapshot.now_s) for region, known in snapshot.electricity.items()},
        )


@dataclass(slots=True)
class Asking:
    """Whether a policy that `replans` is due: at once for somebody new, after `debounce_s` where anything else has
    changed since it was asked, after `interval_s` where nothing has. A policy that does not replan has nothing to say
    unless somebody waits, and is cheap enough to be asked at every round then."""

    replans: bool
    debounce_s: float
    interval_s: float
    _seen: Seen | None = None
    _asked_at_s: float = 0.0

    def is_due(self, snapshot: Snapshot) -> bool:
        if not self.replans:
            return bool(snapshot.waiting)
        if not (snapshot.waiting or any_elastic(snapshot)):
            return False
        if self._seen is None:
            return True
        seen, since_s = Seen.of(snapshot), snapshot.now_s - self._asked_at_s
        if seen.waiting - self._seen.waiting:
            return True
        return since_s >= (self.interval_s if seen == self._seen else self.debounce_s)

    def was_asked(self, seen: Seen, at_s: float) -> None:
        """The policy has decided, and what it decided has been done: this is what is left of what it saw."""
        self._seen, self._asked_at_s = seen, at_s


def any_elastic(snapshot: Snapshot) -> bool:
    """Whether a job runs that a policy may change."""
    return any(not job.stopping and job.spec.elasticity is not Elasticity.NONE for job in snapshot.running)
