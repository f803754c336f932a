"""Reasons as JSON, as they stand in `jobs.reasons`: code, detail, and what is known of region, link and amounts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scheduler.reasons import Reason, ReasonCode

PLACE_PROMISED = "PlacePromised"
PREEMPTED = "Preempted"


def to_document(reason: Reason) -> dict[str, Any]:
    """What is not known is left out."""
    document = {
        "code": reason.code.value,
        "detail": reason.detail,
        "region": reason.region,
        "link": None if reason.link is None else list(reason.link),
        "needed": reason.needed,
        "available": reason.available,
    }
    return {name: value for name, value in document.items() if value is not None}


def to_documents(reasons: Iterable[Reason]) -> list[dict[str, Any]]:
    """In their order."""
    return [to_document(reason) for reason in reasons]


def place_promised(chain: str) -> dict[str, Any]:
    """Of a job whose placement is decided and not free yet."""
    detail = f"{chain} is promised to it: it begins when the jobs that are stopping have left what it needs"
    return {"code": PLACE_PROMISED, "detail": detail}


def preempted(why: str) -> dict[str, Any]:
    """Of a job that a plan has stopped, until the next planning round has looked at it."""
    return {"code": PREEMPTED, "detail": why}


def plan_pending(what: str) -> dict[str, Any]:
    """Of a job that the next planning round has to look at."""
    detail = f"{what}; the next planning round has not looked at it yet"
    return {"code": ReasonCode.PLAN_PENDING.value, "detail": detail}


def promise_broken(detail: str) -> dict[str, Any]:
    """Of a job to which a placement was promised that cannot be had any more."""
    return plan_pending(f"the place that was promised to it is gone: {detail}")
