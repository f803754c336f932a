"""`bace token create|list|rotate|revoke`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from scheduler.units import parse_duration
from service.cli.api import Api, segment
from service.cli.cluster_tables import tokens_table
from service.cli.output import Format, Output, emit

NEVER = "never"


class Role(StrEnum):
    """What a token may do."""

    ADMIN = "admin"
    PROJECT_ADMIN = "project-admin"
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
        str | None, typer.Option("--project", help="The project of a project-admin, submitter or viewer.")
    ] = None,
    account: Annotated[str | None, typer.Option("--account", help="Whose it is; by default yours.")] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="After so long, for example 30d; or never (admins).")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Make a token. Its text is shown this once."""
    body: dict[str, Any] = {"name": name, "role": role.value}
    if project is not None:
        body["project"] = project
    if account is not None:
        body["account"] = account
    if expires == NEVER:
        body["never_expires"] = True
    elif expires is not None:
        body["expires_in_s"] = parse_duration(expires, field="--expires")
    with Api() as api:
        emit(api.post("/v1/tokens", body), output, _made)


@token_app.command("list")
def list_tokens(output: Output = Format.TABLE) -> None:
    """List the tokens, without their text."""
    with Api() as api:
        emit({"items": api.pages("/v1/tokens")}, output, lambda document: tokens_table(document["items"]))


@token_app.command("rotate")
def rotate(
    token_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="By default the token of BACE_TOKEN.")
    ] = None,
    overlap: Annotated[
        str, typer.Option("--overlap", help="For so long the secret before stays valid; 0s: not at all.")
    ] = "1h",
    expires: Annotated[
        str | None, typer.Option("--expires", help="After so long; by default it lives as long again.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Give a token a new secret. It is shown this once; the one before stays valid for the overlap."""
    body = {"overlap_s": parse_duration(overlap, field="--overlap")}
    if expires is not None:
        body["expires_in_s"] = parse_duration(expires, field="--expires")
    with Api() as api:
        chosen = api.get("/v1/whoami")["token_id"] if token_id is None else token_id
        emit(api.post(f"/v1/tokens/{segment(chosen)}/rotate", body), output, _made)


@token_app.command("revoke")
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id.")],
    output: Output = Format.TABLE,
) -> None:
    """Make a token invalid, at once and for good."""
    with Api() as api:
        emit(api.post(f"/v1/tokens/{segment(token_id)}/revoke"), output, lambda token: tokens_table([token]))


def _made(token: dict[str, Any]) -> list[RenderableType]:
    return [
        *tokens_table([token]),
        Text.assemble("\n", (token["token"], "bold"), "\nKeep it: it is not shown again."),
    ]


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to `bace`."""
    app.add_typer(token_app, rich_help_panel=panel)
