"""What the routes share: the problems they declare, and the sizes of their pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Path, Query, Response
from pydantic import BaseModel
from pydantic_core import to_json

from service import limits
from service.api.schemas.problems import Problem

MEDIA_TYPE = "application/json"
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "content": {"application/problem+json": {}}, "description": description}
    for status, description in {
        401: "No token, or one that is unknown, expired or revoked.",
        403: "The token's role does not allow this.",
        404: "There is no such object, or it is not the caller's to see.",
        409: "The object is in a state in which this cannot be done, or the id is ambiguous.",
        412: "If-Match names a version that is not the current one.",
        413: "The body is too large.",
        422: "The request cannot be meant; `errors` names every field. Nothing was stored.",
        429: "Too many requests: `Retry-After` says in how many seconds to try again. Nothing was done.",
        503: "The database does not answer at present. Nothing was stored.",
    }.items()
}


def answered(model: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The model as it is. The framework would validate it once more, against itself, before it is written: where
    answers are many or long that is half of their time."""
    return Response(model.model_dump_json(), status, dict(headers or {}), MEDIA_TYPE)


def answered_documents(items: Sequence[Mapping[str, Any]], following: str | None) -> Response:
    """A page of what needs no validation either: the fields of a model, as they are answered."""
    page = {"items": items, "next": following}
    return Response(to_json(page, inf_nan_mode="null"), media_type=MEDIA_TYPE)


ObjectId = Annotated[str, Path(max_length=255, description="an id, or a beginning of it that fits no other")]
Limit = Annotated[int, Query(ge=1, le=limits.PAGE_MAX, description="items at most")]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the page before")]
After = Annotated[int, Query(ge=0, le=2**53, description="only what has a higher number")]
Project = Annotated[
    str | None,
    Query(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="one project of those the caller sees"),
]
Moment = Annotated[float | None, Query(ge=0, le=1e11, allow_inf_nan=False, description="epoch seconds, UTC")]
