"""`bace submit`, `plan`, `jobs`, `job`, `explain`, `logs`, `cancel`."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from scheduler.job import LIMITS, JobState
from service.cli.api import Api, Document, ProblemError, segment
from service.cli.documents import JobFile, read_job_file
from service.cli.exits import CommandError, Exit
from service.cli.follow import follow_job
from service.cli.job_tables import (
    explanation_page,
    job_page,
    jobs_table,
    plan_page,
    unheeded,
    useful_commands,
)
from service.cli.output import Format, Output, emit, emit_line, error_console, printable, show
from service.cli.watch import wait_for_decision

JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id, or the beginning of it.")]
NEVER = "The job could never run on this cluster."

JobPath = Annotated[
    str, typer.Argument(metavar="FILE", help="A job file (YAML or JSON); - is standard input.")
]


def submit(
    file: JobPath,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the job has ended; exit 1 if it failed.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="As --wait, and show every step.")] = False,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Show what would be decided; submit nothing.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key", help="Submit once, however often this is repeated with the same key."
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Submit a job; shows where it runs and why, as soon as that is decided."""
    if plan_only:
        plan(file, output)
        return
    job_file = read_job_file(file)
    with Api() as api:
        job = _post(api, "/v1/jobs", job_file, {"Idempotency-Key": key or str(uuid.uuid4())})
        table = output is Format.TABLE
        if table:
            show(Text.assemble(("Submitted ", "bold"), printable(job["name"]), f"  {job['job_id']}"))
            job = wait_for_decision(api, job["job_id"])
            show(*job_page(job), *_unheeded(api, job), *useful_commands(job["job_id"]))
        if wait or follow:
            job = follow_job(api, job["job_id"], output, steps=follow)
            if table:
                show("", *job_page(job))
        if follow and not table:
            emit_line(job, output, "")
        elif not table:
            emit(job, output, job_page)
    if job["state"] == "rejected":
        raise CommandError(
            NEVER,
            hint=f"It is looked at again when capacity is added; bace cancel {job['job_id']} takes it back.",
        )
    if (wait or follow) and job["state"] != "succeeded":
        raise CommandError(f"The job ended as {job['state']}.", Exit.FAILED)


def _unheeded(api: Api, job: Document) -> list[RenderableType]:
    """Which of the job's limits the server's policy did not plan by when it was submitted."""
    if all(job["spec"].get(limit) is None for limit in LIMITS):
        return []
    events = api.get(f"/v1/jobs/{segment(job['job_id'])}/events", limit=1)["items"]
    return list(unheeded([name for event in events for name in event["data"].get("not_planned_by", ())]))


def plan(file: JobPath, output: Output = Format.TABLE) -> None:
    """Show what would be decided about a job now: chain, iteration time, cost, or why it would wait."""
    job_file = read_job_file(file)
    with Api() as api:
        planned = _post(api, "/v1/plans", job_file, None)
    emit(planned, output, plan_page)
    if planned["decision"] == "reject":
        raise CommandError(NEVER)


def jobs(
    state: Annotated[
        list[JobState] | None, typer.Option("--state", help="Only jobs in this state (repeatable).")
    ] = None,
    project: Annotated[str | None, typer.Option("--project", help="Only jobs of this project.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="At most so many.")] = 100,
    output: Output = Format.TABLE,
) -> None:
    """List the jobs, newest first."""
    with Api() as api:
        states = [one.value for one in state] if state else None
        page = api.get("/v1/jobs", state=states, project=project, limit=limit)
    emit(page, output, lambda document: jobs_table(document["items"]))


def job(job_id: JobId, output: Output = Format.TABLE) -> None:
    """Show one job: its state, chain, loss, energy and cost."""
    with Api() as api:
        emit(
            api.get(f"/v1/jobs/{segment(job_id)}"),
            output,
            lambda document: (*job_page(document), *_unheeded(api, document)),
        )


def explain(job_id: JobId, output: Output = Format.TABLE) -> None:
    """Say why a job waits, and what would let it start."""
    with Api() as api:
        emit(api.get(f"/v1/jobs/{segment(job_id)}/explain"), output, explanation_page)


def logs(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    stage: Annotated[
        int | None, typer.Option("--stage", min=0, help="Only the processes of this stage.")
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=1, max=5000, help="Begin with the newest lines.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Print what the job's processes wrote."""
    path = f"/v1/jobs/{segment(job_id)}/logs"
    with Api() as api:
        if follow:
            for message in api.stream(path, follow="true", stage=stage, tail=tail):
                emit_line(message.data, output, _log_line(message.data))
            return
        lines = api.pages(path, by="after", stage=stage, tail=tail, limit=5000)
    if output is Format.TABLE:
        for line in lines:
            emit_line(line, output, _log_line(line))
        if not lines:
            of_stage = "" if stage is None else f" of stage {stage}"
            error_console().print(Text(f"No process{of_stage} has written anything.", style="dim"))
    else:
        emit({"items": lines}, output, lambda document: [])


def cancel(
    job_ids: Annotated[list[str], typer.Argument(metavar="ID…")], output: Output = Format.TABLE
) -> None:
    """Cancel jobs: what waits is taken out of the queue, what runs is stopped with a checkpoint.

    What one job is refused for keeps no other from being cancelled; the exit code is that of the first refusal.
    """
    cancelled, refusals = [], {}
    with Api() as api:
        for job_id in job_ids:
            try:
                document = api.post(f"/v1/jobs/{segment(job_id)}/cancel")
            except ProblemError as refusal:
                refusals[job_id] = refusal
                continue
            cancelled.append(document)
            if output is Format.TABLE:
                emit_line(document, output, f"{document['job_id']} {document['state']}")
    if output is not Format.TABLE and (cancelled or len(job_ids) > 1):
        emit({"items": cancelled} if len(job_ids) > 1 else cancelled[0], output, lambda document: [])
    if refusals:
        first, *others = refusals.values()
        if others:
            told = "; ".join(f"{job_id}: {refusal.message}" for job_id, refusal in refusals.items())
            raise CommandError(told, first.exit_code)
        raise first


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to `bace`."""
    for command in (submit, plan, jobs, job, explain, logs, cancel):
        app.command(rich_help_panel=panel)(command)


def _post(api: Api, path: str, job_file: JobFile, headers: dict[str, str] | None) -> Any:
    try:
        return api.post(path, job_file.document, headers)
    except ProblemError as problem:
        raise job_file.located(problem) from None


def _log_line(line: dict[str, Any]) -> Text:
    return Text.assemble((f"stage {line['stage']} ", "dim"), printable(line["text"]))
