"""`/v1/jobs`: submit, look, cancel, and what a job reports."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from scheduler.job import JobState
from service import explanations, job_reports, jobs, limits, topics
from service.api.access import Caller, Injected, Tokens
from service.api.answers import (
    REFUSALS,
    After,
    Cursor,
    Limit,
    ObjectId,
    Project,
    answered,
    answered_documents,
)
from service.api.etags import etag, wanted_version
from service.api.schemas.base import Page
from service.api.schemas.events import Event
from service.api.schemas.jobs import SPEC, Explanation, Job, LogLine, Step, document_of
from service.api.sse import Batch, Feed, resume_after, stream
from service.api.strict_json import StrictRoute
from service.api.wire_route import WireRoute
from service.db.records import LogRecord

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=StrictRoute, responses=REFUSALS)

JobBody = Annotated[
    dict[str, Any],
    Body(description="The job, as docs/protocol.md has it. Unknown fields are errors.", examples=[SPEC]),
]
Key = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="The same key and body again give the same job; the same key and another body are refused.",
    ),
]
Version = Annotated[int | None, Depends(wanted_version)]
Stage = Annotated[int | None, Query(ge=0, le=4096, description="of one stage")]


async def submit(
    services: Injected, principal: Caller, document: JobBody, idempotency_key: Key = None
) -> Response:
    """Store a job durably: it waits from then on, and a planning round looks at it."""
    submitted = await jobs.submit(services, principal, document, idempotency_key)
    job = Job.of(submitted.view)
    headers = {"Location": f"/v1/jobs/{job.job_id}", "ETag": etag(job.version)}
    if submitted.replayed:
        headers["Idempotency-Replayed"] = "true"
    return answered(job, 201, headers)


router.add_api_route(
    "", submit, methods=["POST"], status_code=201, response_model=Job, route_class_override=WireRoute
)


@router.get("", response_model=Page[Job])
async def list_jobs(
    services: Injected,
    principal: Caller,
    project: Project = None,
    state: Annotated[
        list[JobState] | None, Query(description="in one of these states", max_length=16)
    ] = None,
    cursor: Cursor = None,
    limit: Annotated[
        int, Query(ge=1, le=limits.JOB_PAGE_MAX, description="jobs at most")
    ] = limits.PAGE_DEFAULT,
) -> Response:
    """Jobs, the newest first."""
    views, following = await jobs.list_page(
        services, principal, project=project, states=state or (), cursor=cursor, limit=limit
    )
    return answered_documents([document_of(view) for view in views], following)


@router.get("/{job_id}", response_model=Job)
async def show(services: Injected, principal: Caller, response: Response, job_id: ObjectId) -> Job:
    """One job, by its id or a prefix of it that fits no other."""
    job = Job.of(await jobs.show(services, principal, job_id))
    response.headers["ETag"] = etag(job.version)
    return job


@router.post("/{job_id}/cancel", response_model=Job)
async def cancel(
    services: Injected, principal: Caller, response: Response, job_id: ObjectId, version: Version
) -> Job:
    """End a job: at once if it waits; a running one stops its stages first. Again changes nothing."""
    job = Job.of(await jobs.cancel(services, principal, job_id, version))
    response.headers["ETag"] = etag(job.version)
    return job


@router.get("/{job_id}/explain", response_model=Explanation)
async def explain(services: Injected, principal: Caller, job_id: ObjectId) -> Explanation:
    """Why a job waits now, region by region, and what would let it start."""
    return Explanation.of(await explanations.explain_job(services, principal, job_id))


@router.get("/{job_id}/events", response_model=Page[Event])
async def list_events(
    services: Injected,
    principal: Caller,
    job_id: ObjectId,
    after: After = 0,
    limit: Limit = limits.PAGE_DEFAULT,
) -> Page[Event]:
    """What happened to a job, the oldest first. `next` is the number to go on `after`."""
    found = await jobs.history(services, principal, job_id, after, limit)
    following = str(found[-1].seq) if len(found) == limit else None
    return Page(items=[Event.model_validate(event) for event in found], next=following)


@router.get("/{job_id}/steps", response_model=Page[Step])
async def list_steps(
    services: Injected,
    principal: Caller,
    job_id: ObjectId,
    after: After = 0,
    limit: Annotated[int, Query(ge=1, le=limits.STEP_PAGE_MAX)] = limits.STEP_PAGE_MAX,
) -> Page[Step]:
    """The reported series, in order of steps. `next` is the step to go on `after`."""
    found = await job_reports.steps(services, principal, job_id, after, limit)
    following = str(found[-1].step) if len(found) == limit else None
    return Page(items=[Step.model_validate(step) for step in found], next=following)


@router.get(
    "/{job_id}/logs",
    response_model=Page[LogLine],
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "With `follow`: a stream of lines."}
    },
)
async def logs(
    request: Request,
    services: Injected,
    principal: Caller,
    tokens: Tokens,
    job_id: ObjectId,
    after: Annotated[int, Depends(resume_after)],
    stage: Stage = None,
    tail: Annotated[
        int | None, Query(ge=0, le=limits.LOG_PAGE_MAX, description="begin with the newest lines")
    ] = None,
    follow: Annotated[bool, Query(description="stream new lines until the job ends")] = False,
    limit: Annotated[int, Query(ge=1, le=limits.LOG_PAGE_MAX)] = limits.PAGE_MAX,
) -> Any:
    """Lines that the stages wrote, in the order in which they arrived. `next` is the number to go on `after`."""
    if tail is not None and not after:
        part = await job_reports.log_tail(services, principal, job_id, stage=stage, limit=max(tail, 1))
        after = part.lines[0].seq - 1 if part.lines and tail else (part.lines[-1].seq if part.lines else 0)
        limit = max(tail, 1)
    else:
        part = await job_reports.logs(services, principal, job_id, stage=stage, after=after, limit=limit)
    if not follow:
        following = str(part.lines[-1].seq) if len(part.lines) == limit and tail is None else None
        items = [LogLine.model_validate(line) for line in (part.lines if tail != 0 else ())]
        return JSONResponse(Page[LogLine](items=items, next=following).model_dump(mode="json"))

    async def read(seen: int) -> Batch[LogRecord]:
        found = await job_reports.logs(
            services, principal, part.job_id, stage=stage, after=seen, limit=limits.STREAM_BATCH
        )
        return Batch(found.lines, is_last=found.is_final and len(found.lines) < limits.STREAM_BATCH)

    feed = Feed(topics.REPORTS, read, lambda line: (line.seq, "line", LogLine.model_validate(line)))
    return stream(request, services, tokens, principal, feed, after)
