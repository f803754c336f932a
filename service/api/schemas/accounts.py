"""Accounts and their roles."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from service.accounts import AccountView
from service.api.schemas.base import Answer, Body, ProjectName, body_example, example

ACCOUNT_PATTERN = r"^[a-z0-9][a-z0-9._@-]{0,62}$"
AccountName = Annotated[str, Field(pattern=ACCOUNT_PATTERN, description="an account's name")]
RoleName = Literal["admin", "project-admin", "submitter", "viewer", "agent"]
HELD = {"project": "nlp", "role": "submitter"}


class HeldRole(Answer):
    """A role in a project; `*` is all of them."""

    model_config = example(HELD)

    project: str
    role: str


class Account(Answer):
    """A person (`user`) or a program (`service`), and the roles that the caller may know of."""

    model_config = example(
        {
            "account_id": "account-01kb9wy00000000000000000",
            "name": "ci",
            "kind": "service",
            "project": "nlp",
            "roles": [HELD],
            "created_at_s": 1764460700.0,
            "disabled_at_s": None,
        }
    )

    account_id: str
    name: str
    kind: str
    project: str
    """Whose administrators may disable it; `*`: only the platform's."""
    roles: list[HeldRole]
    created_at_s: float
    disabled_at_s: float | None

    @classmethod
    def of(cls, view: AccountView) -> Self:
        """From its rows."""
        record = view.account
        return cls(
            account_id=record.account_id,
            name=record.name,
            kind=record.kind,
            project=record.project,
            roles=[HeldRole(project=role.project, role=role.role) for role in view.roles],
            created_at_s=record.created_at_s,
            disabled_at_s=record.disabled_at_s,
        )


class CreateAccount(Body):
    """With `role`, the account has it from the beginning: in `project`, or everywhere where none is given."""

    model_config = body_example({"name": "ci", "kind": "service", "role": "submitter", "project": "nlp"})

    name: AccountName
    kind: Literal["user", "service"]
    role: RoleName | None = None
    project: ProjectName | None = None


class PutRole(Body):
    """null takes the role away."""

    model_config = body_example({"role": "submitter"})

    role: RoleName | None
