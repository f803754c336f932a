"""Projects: the tenants, their shares and their quotas."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from service import topics
from service.access import Principal
from service.db.records import QuotaRecord
from service.db.repositories import access, allocations, events, jobs, leader, quotas
from service.db.session import Session
from service.months import month_of
from service.services import Services


@dataclass(frozen=True, slots=True)
class ProjectView:
    """A project, how many of its jobs are in which state, and what it holds and has spent this month (UTC)."""

    project: str
    created_at_s: float
    share: float | None
    quota_gpus: int | None
    quota_usd_per_month: float | None
    held_gpus: int
    spent_usd_this_month: float
    jobs: dict[str, int]


async def list_all(services: Services, principal: Principal) -> list[ProjectView]:
    """Those the caller may see."""

    month = month_of(services.clock.now())

    def work(session: Session) -> list[ProjectView]:
        held, spent = allocations.held_gpus_by_project(session), quotas.spent_usd(session, month)
        counts: dict[str, dict[str, int]] = defaultdict(dict)
        for (project, state), count in jobs.count_by_state(session, principal.scope).items():
            counts[project][state] = count
        return [
            ProjectView(
                project=record.project,
                created_at_s=record.created_at_s,
                share=record.share,
                quota_gpus=record.quota_gpus,
                quota_usd_per_month=record.quota_usd_per_month,
                held_gpus=held.get(record.project, 0),
                spent_usd_this_month=spent.get(record.project, 0.0),
                jobs=counts[record.project],
            )
            for record in access.projects(session, principal.scope)
        ]

    return await services.db.read(work)


async def create(services: Services, principal: Principal, project: str) -> ProjectView:
    """Makes a project; one that is there stays as it is."""
    now_s = services.clock.now()

    def work(session: Session) -> None:
        if access.ensure_project(session, project, now_s):
            events.append(
                session,
                project=project,
                at_s=now_s,
                kind="project.created",
                object_kind="project",
                object_id=project,
                actor=principal.token_id,
            )

    await services.db.run(work)
    return await _show(services, principal, project)


async def put_share(
    services: Services, principal: Principal, project: str, share: float | None
) -> tuple[ProjectView, bool]:
    """Gives a project a weight against the others (None: takes it away), and makes it if need be; whether it did."""
    now_s = services.clock.now()

    def work(session: Session) -> bool:
        is_new = access.ensure_project(session, project, now_s)
        if is_new or access.share(session, project) != share:
            access.change_share(session, project, share)
            _tell(session, principal, project, now_s, is_new, {"share": share})
        return is_new

    is_new = await services.db.run(work)
    await services.bus.publish(topics.PLANNING)
    return await _show(services, principal, project), is_new


async def put_quota(
    services: Services, principal: Principal, project: str, quota: QuotaRecord
) -> tuple[ProjectView, bool]:
    """Bounds what a project may hold at once and spend in a month (None: not at all), and makes it if need be; whether
    it did. What runs goes on; nothing above the quota is promised from now on."""
    now_s = services.clock.now()

    def work(session: Session) -> bool:
        is_new = access.ensure_project(session, project, now_s)
        if is_new or quotas.of_project(session, project) != quota:
            quotas.change(session, project, quota)
            told = {"quota_gpus": quota.gpus, "quota_usd_per_month": quota.usd_per_month}
            _tell(session, principal, project, now_s, is_new, told)
        return is_new

    is_new = await services.db.run(work)
    await services.bus.publish(topics.PLANNING)
    return await _show(services, principal, project), is_new


async def _show(services: Services, principal: Principal, project: str) -> ProjectView:
    return next(view for view in await list_all(services, principal) if view.project == project)


def _tell(
    session: Session, principal: Principal, project: str, at_s: float, is_new: bool, data: dict[str, Any]
) -> None:
    """The event of a project that was made or changed, and that planning has to look again."""
    leader.capacity_changed(session)
    events.append(
        session,
        project=project,
        at_s=at_s,
        kind="project.created" if is_new else "project.changed",
        object_kind="project",
        object_id=project,
        actor=principal.token_id,
        data=data,
    )
