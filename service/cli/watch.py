"""Looks at a job until it has ended: its document and the steps that are new, as they come.

A server that restarts in between is waited for: the job goes on without it, and so does the watching.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from scheduler.reasons import ReasonCode
from service.cli.api import Api, segment
from service.cli.exits import CommandError, Exit
from service.cli.job_tables import FINAL_STATES

Document = dict[str, Any]

POLL_S = 0.5
STEP_PAGE = 1000
PATIENCE_S = 120.0
"""So long a server may be away before the watching gives up."""
DECISION_PATIENCE_S = 15.0


@dataclass(frozen=True, slots=True)
class Glance:
    """A job at one moment, and the steps that were reported since the last."""

    job: Document
    steps: list[Document] = field(default_factory=list)


def watch(api: Api, job_id: str, *, tick: Callable[[], None] | None = None) -> Iterator[Glance]:
    """Glances until the job is in a final state (that one included). `tick` is called before each."""
    path = f"/v1/jobs/{segment(job_id)}"
    last_step = 0
    while True:
        if tick is not None:
            tick()
        glance = patiently(partial(_glance, api, path, last_step))
        if glance.steps:
            last_step = glance.steps[-1]["step"]
        yield glance
        if glance.job["state"] in FINAL_STATES:
            return
        time.sleep(POLL_S)


def wait_for_decision(api: Api, job_id: str) -> Document:
    """The job as soon as a planning round has looked at it, or as it is after a while."""
    deadline = time.monotonic() + DECISION_PATIENCE_S
    while True:
        job: Document = api.get(f"/v1/jobs/{segment(job_id)}")
        if not _is_undecided(job) or time.monotonic() > deadline:
            return job
        time.sleep(POLL_S / 2)


def patiently(work: Callable[[], Glance]) -> Glance:
    """Do it again while the server is away, for `PATIENCE_S` at most."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return work()
        except CommandError as error:
            if error.exit_code is not Exit.UNREACHABLE or time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)


def _glance(api: Api, path: str, last_step: int) -> Glance:
    # The job first: once it has ended, no step is missing from what is read after it.
    job = api.get(path)
    return Glance(job, api.pages(f"{path}/steps", by="after", after=last_step, limit=STEP_PAGE))


def _is_undecided(job: Document) -> bool:
    codes = {reason["code"] for reason in job["reasons"]}
    return job["state"] == "queued" and (not codes or ReasonCode.PLAN_PENDING.value in codes)
