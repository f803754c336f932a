"""A job as a caller sends it: parsed, completed, and refused with every reason at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from agents.protocol import why_refused
from scheduler.spec.issues import FieldIssue, SpecError, show
from scheduler.spec.job import JobDocument, parse_job
from scheduler.spec.support import named_regions, unsupported
from scheduler.units import format_time
from service import limits
from service.access import Principal
from service.db.tables import SHARED_PROJECT
from service.errors import FieldError, ForbiddenError, InvalidInputError

UNSUPPORTED = "unsupported"


def parse(document: dict[str, Any], principal: Principal, *, max_grace_s: float) -> JobDocument:
    """The job, in the caller's project.

    Raises InvalidInputError with every field that is wrong or that this version cannot honour, ForbiddenError for a
    project that is not the caller's.
    """
    if principal.project != SHARED_PROJECT:
        document = {"project": principal.project, **document}
    try:
        job = parse_job(document, max_grace_s=max_grace_s)
    except SpecError as error:
        raise refusal(error.issues) from None
    if not principal.scope.covers(job.project):
        raise ForbiddenError(
            f"project: {show(job.project)} is not this token's project ({principal.project})",
            errors=(FieldError("/project", f"expected {principal.project}", value=job.project),),
        )
    issues = unsupported(job)
    if issues:
        raise refusal(issues, code=UNSUPPORTED)
    refused = list(_refused_variables(job))
    if refused:
        raise refusal(refused)
    return job


def check_deadline(job: JobDocument, now_s: float) -> None:
    """Raises InvalidInputError for a deadline that has passed: no policy could keep it."""
    if job.deadline is not None and job.deadline <= now_s:
        expected = f"a time to come: it is {format_time(now_s)} at this server"
        raise refusal([FieldIssue("/deadline", format_time(job.deadline), expected)])


def check_regions(job: JobDocument, regions: Iterable[str]) -> None:
    """Raises InvalidInputError for a region that there is none of, and for a pattern that no region there is has ever
    matched: most likely a slip."""
    known = sorted(regions)
    there_are = f"there are {', '.join(known)}" if known else "there is none yet: start an agent in it first"
    issues = [
        FieldIssue(
            f"/placement/regions/{index}", pattern, f"a region, or a pattern that fits one: {there_are}"
        )
        for index, pattern in enumerate(job.placement.regions)
        if not any(fnmatchcase(name, pattern) for name in known)
    ]
    issues += [
        FieldIssue(pointer, region, f"a region: {there_are}")
        for pointer, region in named_regions(job)
        if region not in known
    ]
    if issues:
        raise refusal(issues)


def _refused_variables(job: JobDocument) -> Iterator[FieldIssue]:
    """Variables that every agent would refuse to pass: told now, not when the job starts."""
    for section, names in (("env", job.run.env or {}), ("secrets", job.run.secrets or {})):
        for name in names:
            why = why_refused(name)
            if why:
                yield FieldIssue(f"/run/{section}/{name}", name, f"another name: it {why}")


def refusal(issues: Iterable[FieldIssue], code: str = "invalid") -> InvalidInputError:
    """All issues as one error."""
    shown = list(issues)[: limits.MAX_ERRORS_SHOWN]
    fields = ", ".join(issue.field for issue in shown)
    verb = "this version cannot honour" if code == UNSUPPORTED else "not valid"
    return InvalidInputError(
        f"{verb}: {fields}",
        errors=tuple(
            FieldError(issue.pointer, f"expected {issue.expected}", code, issue.value) for issue in shown
        ),
    )
