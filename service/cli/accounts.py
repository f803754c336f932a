"""`bace account list|create|grant|disable|enable`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from service.cli.api import Api, segment
from service.cli.cluster_tables import accounts_table
from service.cli.output import Format, Output, emit
from service.cli.tokens import Role

NO_ROLE = "none"
EVERYWHERE = "*"


class Kind(StrEnum):
    """A person or a program."""

    USER = "user"
    SERVICE = "service"


class Granted(StrEnum):
    """A role, or none any more."""

    ADMIN = "admin"
    PROJECT_ADMIN = "project-admin"
    SUBMITTER = "submitter"
    VIEWER = "viewer"
    AGENT = "agent"
    NONE = NO_ROLE


account_app = typer.Typer(
    name="account",
    help="People and programs, and what each may do in which project.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
AccountName = Annotated[str, typer.Argument(metavar="NAME", help="The account's name.")]


@account_app.command("list")
def list_accounts(output: Output = Format.TABLE) -> None:
    """List the accounts and their roles."""
    with Api() as api:
        emit({"items": api.pages("/v1/accounts")}, output, lambda document: accounts_table(document["items"]))


@account_app.command("create")
def create(
    name: AccountName,
    kind: Annotated[Kind, typer.Option("--kind", help="A person or a program.")],
    role: Annotated[Role | None, typer.Option("--role", help="What it may do from the beginning.")] = None,
    project: Annotated[str | None, typer.Option("--project", help="Where it has that role.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Make an account. It gets in with a token: `bace token create … --account NAME`."""
    body: dict[str, Any] = {"name": name, "kind": kind.value}
    if role is not None:
        body["role"] = role.value
    if project is not None:
        body["project"] = project
    with Api() as api:
        _show(api.post("/v1/accounts", body), output)


@account_app.command("grant")
def grant(
    name: AccountName,
    role: Annotated[
        Granted, typer.Argument(metavar="ROLE", help="What it may do; none takes the role away.")
    ],
    project: Annotated[
        str, typer.Option("--project", help="Where; without it in all projects, for roles that can be.")
    ] = EVERYWHERE,
    output: Output = Format.TABLE,
) -> None:
    """Give an account a role in a project, in place of the one that it had there."""
    body = {"role": None if role is Granted.NONE else role.value}
    with Api() as api:
        path = f"/v1/accounts/{segment(name)}/roles/{segment(project)}"
        _show(api.request("PUT", path, document=body), output)


@account_app.command("disable")
def disable(name: AccountName, output: Output = Format.TABLE) -> None:
    """Disable an account: none of its tokens opens anything any more."""
    with Api() as api:
        _show(api.post(f"/v1/accounts/{segment(name)}/disable"), output)


@account_app.command("enable")
def enable(name: AccountName, output: Output = Format.TABLE) -> None:
    """Enable a disabled account."""
    with Api() as api:
        _show(api.post(f"/v1/accounts/{segment(name)}/enable"), output)


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to `bace`."""
    app.add_typer(account_app, rich_help_panel=panel)


def _show(account: dict[str, Any], output: Format) -> None:
    emit(account, output, lambda document: accounts_table([document]))
