"""The audit log."""

from __future__ import annotations

from service.api.schemas.base import Answer, example

AUDIT = {
    "seq": 4711,
    "project": "nlp",
    "at_s": 1764460700.0,
    "last_at_s": 1764460700.0,
    "count": 1,
    "account": "nightly",
    "token_id": "token-01kb9wy00000000000000000",
    "action": "POST /v1/jobs/{job_id}/cancel",
    "path": "/v1/jobs/job-01kb9x/cancel",
    "object_kind": "job",
    "object_id": "job-01kb9x0000000000000000000",
    "outcome": "done",
    "code": "",
    "address": "10.1.0.9",
    "trace_id": "req-01kb9x1000000000000000000",
}


class AuditEntry(Answer):
    """A request that may have changed something or was denied, or `count` denials that are alike."""

    model_config = example(AUDIT)

    seq: int
    project: str
    """Of the caller, or of what an administrator changed; `*`: of all, or of nobody who was recognised."""
    at_s: float
    last_at_s: float
    """Of the last of `count`."""
    count: int
    account: str
    """Who; empty where nobody was recognised."""
    token_id: str
    action: str
    """Method and route."""
    path: str
    """Of the first of `count`."""
    object_kind: str
    object_id: str
    """What was changed; of several the first."""
    outcome: str
    """done, denied, refused or failed."""
    code: str
    """Of the problem that it was answered with."""
    address: str
    """From where."""
    trace_id: str
    """Under which the server's log knows it."""
