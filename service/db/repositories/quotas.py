"""What projects may hold and spend, and what they have spent in a month."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import bindparam, or_, select, update

from service.db.records import QuotaRecord
from service.db.session import Session
from service.db.tables import MonthlySpendingRow, ProjectRow
from service.db.upsert import insert_of

_OF_NAMED = select(ProjectRow.project, ProjectRow.quota_gpus, ProjectRow.quota_usd_per_month).where(
    ProjectRow.project.in_(bindparam("projects", expanding=True))
)


# Every snapshot and every look of the metrics reads these.
_QUOTAS = (
    select(ProjectRow.project, ProjectRow.quota_gpus, ProjectRow.quota_usd_per_month)
    .where(or_(ProjectRow.quota_gpus.is_not(None), ProjectRow.quota_usd_per_month.is_not(None)))
    .order_by(ProjectRow.project)
)
_SPENT = (
    select(MonthlySpendingRow.project, MonthlySpendingRow.amount_usd)
    .where(MonthlySpendingRow.month == bindparam("month"))
    .order_by(MonthlySpendingRow.project)
)


def of_projects(session: Session) -> dict[str, QuotaRecord]:
    """Of those that have any, by project."""
    found = session.execute(_QUOTAS)
    return {project: QuotaRecord(gpus, usd) for project, gpus, usd in found}


def of_named(session: Session, projects: Sequence[str]) -> dict[str, QuotaRecord]:
    """Of those of these projects that there are."""
    found = session.execute(_OF_NAMED, {"projects": projects})
    return {project: QuotaRecord(gpus, usd) for project, gpus, usd in found}


def of_project(session: Session, project: str) -> QuotaRecord:
    """Of one; without any limits if there is no such project."""
    return of_named(session, [project]).get(project, QuotaRecord(None, None))


def change(session: Session, project: str, quota: QuotaRecord) -> None:
    session.execute(
        update(ProjectRow)
        .where(ProjectRow.project == project)
        .values(quota_gpus=quota.gpus, quota_usd_per_month=quota.usd_per_month)
    )


def spent_usd(session: Session, month: str) -> dict[str, float]:
    """By project, what the ledger holds of that month."""
    found = session.execute(_SPENT, {"month": month})
    return {project: amount for project, amount in found}  # noqa: C416 - dict() loses the types


def add_spent(session: Session, project: str, by_month: Mapping[str, float]) -> None:
    """Count what has just been billed to a project."""
    rows = [
        {"project": project, "month": month, "amount_usd": amount_usd}
        for month, amount_usd in sorted(by_month.items())
    ]
    session.execute(_add_spent(session.dialect), rows)


@cache
def _add_spent(dialect: str) -> Any:
    statement = insert_of(dialect, MonthlySpendingRow.__table__)
    return statement.on_conflict_do_update(
        index_elements=["project", "month"],
        set_={"amount_usd": MonthlySpendingRow.amount_usd + statement.excluded.amount_usd},
    )
