"""Projects."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from service.api.schemas.base import Answer, Body, ProjectName, body_example, example

PROJECT = {
    "project": "nlp",
    "created_at_s": 1764460700.0,
    "share": 2.0,
    "jobs": {"running": 1, "queued": 4},
}


class Project(Answer):
    """A tenant and how many of its jobs are in which state."""

    model_config = example(PROJECT)

    project: str
    created_at_s: float
    share: float | None
    """Its weight against the other projects', for policies that keep shares; null: it has none."""
    jobs: dict[str, int]


class CreateProject(Body):
    """A submission makes its project by itself; this makes one beforehand."""

    model_config = body_example({"project": "nlp"})

    project: ProjectName


class PutProject(Body):
    """`share` is a weight against other projects, 0 or more; null takes it away."""

    model_config = body_example({"share": 2.0})

    share: Annotated[float, Field(ge=0, le=1e9)] | None
