"""`bace token create|list|revoke`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.text import Text

from scheduler.errors import InvalidValueError
from scheduler.units import parse_duration
from service.cli.api import Api, segment
from service.cli.cluster_tables import tokens_table
from service.cli.exits import CommandError, Exit
from service.cli.output import Format, Output, emit


class Role(StrEnum):
    """What a token may do."""

    ADMIN = "admin"
    SUBMITTER = "submitter"
    VIEWER = "viewer"
    AGENT = "agent"


token_app = typer.Typer(
    name="token",
    help="Tokens for people, programs and agents.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@token_app.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the token is for.")],
    role: Annotated[Role, typer.Option("--role", help="What it may do.")],
    project: Annotated[
        str | None, typer.Option("--project", help="The project of a submitter or viewer.")
    ] = None,
    expires: Annotated[str | None, typer.Option("--expires", help="After so long, for example 30d.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Make a token. Its text is shown this once."""
    body: dict[str, Any] = {"name": name, "role": role.value}
    if project is not None:
        body["project"] = project
    if expires is not None:
        try:
            body["expires_in_s"] = parse_duration(expires, field="--expires")
        except InvalidValueError as error:
            raise CommandError(str(error), Exit.USAGE) from None
    with Api() as api:
        emit(
            api.post("/v1/tokens", body),
            output,
            lambda token: [
                *tokens_table([token]),
                Text.assemble("\n", (token["token"], "bold"), "\nKeep it: it is not shown again."),
            ],
        )


@token_app.command("list")
def list_tokens(output: Output = Format.TABLE) -> None:
    """List the tokens, without their text."""
    with Api() as api:
        emit({"items": api.pages("/v1/tokens")}, output, lambda document: tokens_table(document["items"]))


@token_app.command("revoke")
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id, or the beginning of it.")],
    output: Output = Format.TABLE,
) -> None:
    """Make a token invalid, at once and for good."""
    with Api() as api:
        emit(api.post(f"/v1/tokens/{segment(token_id)}/revoke"), output, lambda token: tokens_table([token]))


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to `bace`."""
    app.add_typer(token_app, rich_help_panel=panel)
