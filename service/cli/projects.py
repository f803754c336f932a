"""`bace project list|share`."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.api import Api, segment
from service.cli.cluster_tables import projects_table
from service.cli.exits import CommandError, Exit
from service.cli.output import Format, Output, emit

NO_SHARE = "none"

project_app = typer.Typer(
    name="project",
    help="Projects (tenants) and their shares of the cluster.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@project_app.command("list")
def list_projects(output: Output = Format.TABLE) -> None:
    """List the projects with their shares and jobs."""
    with Api() as api:
        emit({"items": api.pages("/v1/projects")}, output, lambda document: projects_table(document["items"]))


@project_app.command("share")
def share(
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="It is made if need be.")],
    weight: Annotated[
        str,
        typer.Argument(
            metavar="WEIGHT", help="Against the other projects': a number of at least 0; or none."
        ),
    ],
    output: Output = Format.TABLE,
) -> None:
    """Give a project its weight against others, for policies that keep shares (horizon)."""
    body = {"share": None if weight == NO_SHARE else _weight(weight)}
    with Api() as api:
        found = api.request("PUT", f"/v1/projects/{segment(project)}", document=body)
        emit(found, output, lambda document: projects_table([document]))


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        detail = f"WEIGHT: {text} is not valid: expected a number of at least 0, or {NO_SHARE}"
        raise CommandError(detail, Exit.USAGE) from None


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to `bace`."""
    app.add_typer(project_app, rich_help_panel=panel)
