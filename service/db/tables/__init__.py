"""Every table. Times are epoch seconds (UTC) in doubles, sizes SI units; no ORM row leaves `service/db`.

Every row has a `project`. Rows that all projects share (regions, nodes, links, prices) have project `*`. What
must never be true is forbidden by constraints here, not only by code.
"""

from service.db.tables.access import AccountRow, AuditRow, ProjectRow, RoleRow, TokenRow
from service.db.tables.allocations import (
    AllocationRow,
    HeldGpuRow,
    HeldLinkRow,
    HeldPortRow,
    ProcessRow,
    PromiseRow,
)
from service.db.tables.base import SHARED_PROJECT, Base
from service.db.tables.cluster import AgentRow, GpuTypeRow, NodeRow, PoolRow, RegionRow
from service.db.tables.jobs import EventRow, IdempotencyRow, JobRow
from service.db.tables.leader import LeaderRow
from service.db.tables.ledger import JobSpendingRow, LedgerRow, MonthlySpendingRow
from service.db.tables.links import LinkEstimateRow, LinkRow, LinkTestRow
from service.db.tables.prices import PricePointRow, PriceSeriesRow
from service.db.tables.reports import LogRow, StepRow, StepSeriesRow

__all__ = [
    "SHARED_PROJECT",
    "AccountRow",
    "AgentRow",
    "AllocationRow",
    "AuditRow",
    "Base",
    "EventRow",
    "GpuTypeRow",
    "HeldGpuRow",
    "HeldLinkRow",
    "HeldPortRow",
    "IdempotencyRow",
    "JobRow",
    "JobSpendingRow",
    "LeaderRow",
    "LedgerRow",
    "LinkEstimateRow",
    "LinkRow",
    "LinkTestRow",
    "LogRow",
    "MonthlySpendingRow",
    "NodeRow",
    "PoolRow",
    "PricePointRow",
    "PriceSeriesRow",
    "ProcessRow",
    "ProjectRow",
    "PromiseRow",
    "RegionRow",
    "RoleRow",
    "StepRow",
    "StepSeriesRow",
    "TokenRow",
]
