"""What every use-case gets: the ports, and the settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from service.audit import AuditLog
from service.folding import Folding
from service.metrics import Metrics
from service.pace import Pace
from service.ports import Bus, Clock, Compute, Db, Ids
from service.progress import Rules
from service.quiet_beats import Beat, Launches, Quiet
from service.settings import Settings
from service.snapshots import SnapshotReader

MAX_BEATS_TOGETHER = 200
"""Heartbeats that are looked at in one transaction: few enough for none to wait long for the others."""


@dataclass(frozen=True, slots=True)
class Services:
    """Made once, by `service/wiring.py` (or by a test, of in-memory twins)."""

    settings: Settings
    clock: Clock
    ids: Ids
    db: Db
    bus: Bus
    compute: Compute
    snapshots: SnapshotReader = field(default_factory=SnapshotReader)
    metrics: Metrics = field(default_factory=Metrics)
    audit: AuditLog = field(default_factory=AuditLog)
    beats: Folding[Beat, Quiet | None] = field(default_factory=lambda: Folding(MAX_BEATS_TOGETHER))
    launches: Launches = field(default_factory=Launches)
    pace: Pace = field(default_factory=Pace)

    def with_db(self, db: Db) -> Services:
        """The same with another way to the database."""
        return replace(self, db=db)

    def rules(self) -> Rules:
        """What the life of jobs goes by now."""
        return Rules.of(self.settings, self.pace.interval_s(self.settings))
