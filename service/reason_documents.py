"""Reasons as JSON, as they stand in `jobs.reasons`: code, detail, and what is known of region, link and amounts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scheduler.reasons import Reason


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
