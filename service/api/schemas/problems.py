"""Refusals (RFC 9457)."""

from __future__ import annotations

from typing import Any

from service.api.schemas.base import Answer, example

FIELD = {
    "pointer": "/training/steps",
    "where": "body",
    "detail": "expected a whole number of at least 1",
    "code": "invalid",
    "value": "0",
}


class FieldProblem(Answer):
    """One thing wrong with the request."""

    model_config = example(FIELD)

    pointer: str
    """JSON pointer into `where`."""
    where: str
    """body, query, path or header."""
    detail: str
    """What would be right."""
    code: str
    value: str | None
    """What was given, shortened; null where nothing was."""


class Problem(Answer):
    """`application/problem+json`: `code` is for machines, `detail` says what to do, `trace_id` finds the log line."""

    model_config = example(
        {
            "type": "about:blank#invalid_input",
            "title": "Unprocessable Content",
            "status": 422,
            "detail": "1 field is not valid: training.steps",
            "instance": "/v1/jobs",
            "code": "invalid_input",
            "errors": [FIELD],
            "reasons": [],
            "trace_id": "01kb9x4y000000000000000000",
        }
    )

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    errors: list[FieldProblem]
    reasons: list[dict[str, Any]]
    trace_id: str
