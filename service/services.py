"""What every use-case gets: the ports, and the settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from service.audit import AuditLog
from service.metrics import Metrics
from service.ports import Bus, Clock, Compute, Db, Ids
from service.settings import Settings
from service.snapshots import SnapshotReader


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

    def with_db(self, db: Db) -> Services:
        """The same with another way to the database."""
        return replace(self, db=db)
