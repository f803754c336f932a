"""Tokens."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from service import limits
from service.api.schemas.accounts import AccountName
from service.api.schemas.base import Answer, Body, Label, ProjectName, RegionName, body_example, example, flat
from service.db.records import TokenRecord

TOKEN = {
    "token_id": "token-01kb9wy00000000000000000",
    "account": "ci",
    "name": "nightly runs",
    "role": "submitter",
    "project": "nlp",
    "prefix": "bace_x7Qd",
    "created_at_s": 1764460700.0,
    "expires_at_s": 1795996700.0,
    "revoked_at_s": None,
    "rotated_at_s": None,
    "previous_until_s": None,
    "last_used_at_s": 1764460800.0,
    "single_use": False,
    "region": None,
    "agent_id": None,
}
Lifetime = Annotated[float, Field(gt=0, le=1e10)]


class Token(Answer):
    """A token without its text. `project` is `*` for administrators, agents and viewers of everything."""

    model_config = example(TOKEN)

    token_id: str
    account: str
    """Whose it is."""
    name: str
    role: str
    project: str
    prefix: str
    """The first characters of its text, to tell it from others."""
    created_at_s: float
    expires_at_s: float | None
    revoked_at_s: float | None
    rotated_at_s: float | None
    """When it was given its present secret, if not when it was made."""
    previous_until_s: float | None
    """Until when the secret before is valid too."""
    last_used_at_s: float | None
    """To a few minutes."""
    single_use: bool
    """One agent may join with it, in `region` if one is named."""
    region: str | None
    agent_id: str | None
    """The agent that has used it, if it is for single use; else the agent whose identity it is."""

    @classmethod
    def of(cls, record: TokenRecord, account: str) -> Self:
        """From its row."""
        return cls.model_validate(flat(record, account=account))


class NewToken(Token):
    """The answer to its creation or rotation: the only time that its text is shown."""

    model_config = example({**TOKEN, "token": "bace_x7Qd…"})

    token: str


class CreateToken(Body):
    """`project` is needed for a submitter or project-admin, optional for a viewer, and not given for an admin or agent.

    `account` is whose it will be (none: the caller's own). Without `expires_in_s` it lives as long as the server's
    settings say; an administrator may ask for one that never expires.
    """

    model_config = body_example(
        {"name": "nightly runs", "role": "submitter", "project": "nlp", "account": "ci"}
    )

    name: Label
    role: Literal["admin", "project-admin", "submitter", "viewer", "agent"]
    project: ProjectName | None = None
    account: AccountName | None = None
    expires_in_s: Lifetime | None = None
    never_expires: bool = False


class CreateJoinToken(Body):
    """`account`: whose the token and the node's identity will be (none: the caller's own); it holds the role agent."""

    model_config = body_example({"name": "rack 7", "region": "eu-west-2", "expires_in_s": 3600.0})

    name: Label = "join"
    region: RegionName | None = None
    expires_in_s: Annotated[float, Field(gt=0, le=limits.MAX_JOIN_TOKEN_S)] = 3600.0
    account: AccountName | None = None


class RotateToken(Body):
    """`overlap_s`: for how long the secret before stays valid. It lives as long again as it was made for, or
    `expires_in_s`."""

    model_config = body_example({"overlap_s": 3600.0})

    overlap_s: Annotated[float, Field(ge=0, le=limits.MAX_TOKEN_OVERLAP_S)] = 3600.0
    expires_in_s: Lifetime | None = None


class WhoAmI(Answer):
    """Who the server takes the caller for."""

    model_config = example(
        {
            "token_id": TOKEN["token_id"],
            "account": "ci",
            "name": "nightly runs",
            "role": "submitter",
            "project": "nlp",
            "expires_at_s": 1795996700.0,
        }
    )

    token_id: str
    account: str
    name: str
    """Of the token."""
    role: str
    project: str
    expires_at_s: float | None
    """Of the token; null: it does not end by itself."""
