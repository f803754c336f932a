"""Projects: the tenants, and their shares."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service import topics
from service.access import Principal
from service.db.repositories import access, events, jobs, leader
from service.services import Services


@dataclass(frozen=True, slots=True)
class ProjectView:
    """A project and how many of its jobs are in which state."""

    project: str
    created_at_s: float
    share: float | None
    jobs: dict[str, int]


async def list_all(services: Services, principal: Principal) -> list[ProjectView]:
    """Those the caller may see."""

    def work(session: Session) -> list[ProjectView]:
        counts: dict[str, dict[str, int]] = defaultdict(dict)
        for (project, state), count in jobs.count_by_state(session, principal.scope).items():
            counts[project][state] = count
        return [
            ProjectView(record.project, record.created_at_s, record.share, counts[record.project])
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
            leader.capacity_changed(session)
            events.append(
                session,
                project=project,
                at_s=now_s,
                kind="project.created" if is_new else "project.changed",
                object_kind="project",
                object_id=project,
                actor=principal.token_id,
                data={"share": share},
            )
        return is_new

    is_new = await services.db.run(work)
    await services.bus.publish(topics.PLANNING)
    return await _show(services, principal, project), is_new


async def _show(services: Services, principal: Principal, project: str) -> ProjectView:
    return next(view for view in await list_all(services, principal) if view.project == project)
