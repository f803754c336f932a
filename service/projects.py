"""Projects: the tenants."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.access import Principal
from service.db.repositories import access, events, jobs
from service.services import Services


@dataclass(frozen=True, slots=True)
class ProjectView:
    """A project and how many of its jobs are in which state."""

    project: str
    created_at_s: float
    jobs: dict[str, int]


async def list_all(services: Services, principal: Principal) -> list[ProjectView]:
    """Those the caller may see."""

    def work(session: Session) -> list[ProjectView]:
        counts: dict[str, dict[str, int]] = defaultdict(dict)
        for (project, state), count in jobs.count_by_state(session, principal.scope).items():
            counts[project][state] = count
        return [
            ProjectView(record.project, record.created_at_s, counts[record.project])
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
    return next(view for view in await list_all(services, principal) if view.project == project)
