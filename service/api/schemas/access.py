"""Tokens and projects."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from service.api.schemas.base import Answer, Body, Label, ProjectName, body_example, example

TOKEN = {
    "token_id": "token-01kb9wy00000000000000000",
    "name": "ci",
    "role": "submitter",
    "project": "nlp",
    "prefix": "bace_x7Qd",
    "created_at_s": 1764460700.0,
    "expires_at_s": None,
    "revoked_at_s": None,
}
PROJECT = {
    "project": "nlp",
    "created_at_s": 1764460700.0,
    "share": 2.0,
    "jobs": {"running": 1, "queued": 4},
}


class Token(Answer):
    """A token without its text. `project` is `*` for administrators, agents and viewers of everything."""

    model_config = example(TOKEN)

    token_id: str
    name: str
    role: str
    project: str
    prefix: str
    """The first characters of its text, to tell it from others."""
    created_at_s: float
    expires_at_s: float | None
    revoked_at_s: float | None


class NewToken(Token):
    """The answer to its creation: the only time that its text is shown."""

    model_config = example({**TOKEN, "token": "bace_x7Qd…"})

    token: str


class CreateToken(Body):
    """`project` is needed for a submitter, optional for a viewer, and not given for an admin or agent."""

    model_config = body_example({"name": "ci", "role": "submitter", "project": "nlp"})

    name: Label
    role: Literal["admin", "submitter", "viewer", "agent"]
    project: ProjectName | None = None
    expires_in_s: Annotated[float, Field(gt=0, le=1e10)] | None = None


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


class WhoAmI(Answer):
    """Who the server takes the caller for."""

    model_config = example(
        {"token_id": TOKEN["token_id"], "name": "ci", "role": "submitter", "project": "nlp"}
    )

    token_id: str
    name: str
    role: str
    project: str
