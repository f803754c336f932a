"""Projects."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from service.api.schemas.base import Answer, Body, ProjectName, body_example, example

PROJECT = {
    "project": "nlp",
    "created_at_s": 1764460700.0,
    "share": 2.0,
    "quota_gpus": 64,
    "quota_usd_per_month": 20000.0,
    "held_gpus": 32,
    "spent_usd_this_month": 4211.5,
    "jobs": {"running": 1, "queued": 4},
}


class Project(Answer):
    """A tenant, what it may hold and spend, and how many of its jobs are in which state."""

    model_config = example(PROJECT)

    project: str
    created_at_s: float
    share: float | None
    """Its weight against the other projects', for policies that keep shares; null: it has none."""
    quota_gpus: int | None
    """GPUs that it may hold at once; null: as many as there are."""
    quota_usd_per_month: float | None
    """What it may spend in a calendar month (UTC); null: as much as it likes."""
    held_gpus: int
    spent_usd_this_month: float
    jobs: dict[str, int]


class CreateProject(Body):
    """A submission makes its project by itself; this makes one beforehand."""

    model_config = body_example({"project": "nlp"})

    project: ProjectName


class PutProject(Body):
    """`share` is a weight against other projects, 0 or more; null takes it away."""

    model_config = body_example({"share": 2.0})

    share: Annotated[float, Field(ge=0, le=1e9)] | None


class PutQuota(Body):
    """GPUs that a project may hold at once, and USD that it may spend in a calendar month (UTC); null: no limit."""

    model_config = body_example({"gpus": 64, "usd_per_month": 20000.0})

    gpus: Annotated[int, Field(ge=0, le=10_000_000)] | None
    usd_per_month: Annotated[float, Field(ge=0, le=1e12)] | None
