"""`bace project list|share|quota`."""

from __future__ import annotations

from typing import Annotated

import typer

from scheduler.errors import InvalidValueError
from service.cli.api import Api, segment
from service.cli.cluster_tables import projects_table
from service.cli.exits import CommandError, Exit
from service.cli.numbers import finite
from service.cli.output import Format, Output, emit

NONE = "none"

project_app = typer.Typer(
    name="project",
    help="Projects (tenants), their shares of the cluster and their quotas.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@project_app.command("list")
def list_projects(output: Output = Format.TABLE) -> None:
    """List the projects with their shares, quotas and jobs."""
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
    body = {"share": _figure("WEIGHT", weight, float, "a number")}
    with Api() as api:
        found = api.request("PUT", f"/v1/projects/{segment(project)}", document=body)
        emit(found, output, lambda document: projects_table([document]))


@project_app.command("quota")
def quota(
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="It is made if need be.")],
    gpus: Annotated[
        str | None, typer.Option("--gpus", help="GPUs that it may hold at once, or none for no limit.")
    ] = None,
    usd_per_month: Annotated[
        str | None,
        typer.Option("--usd-per-month", help="USD that it may spend in a calendar month (UTC), or none."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Bound what a project may hold and spend; without options, show what it may and does."""
    with Api() as api:
        known = {each["project"]: each for each in api.pages("/v1/projects")}.get(project, {})
        if gpus is None and usd_per_month is None:
            if not known:
                raise CommandError(f"There is no project {project}.", Exit.NOT_FOUND)
            emit(known, output, lambda document: projects_table([document]))
            return
        body = {"gpus": known.get("quota_gpus"), "usd_per_month": known.get("quota_usd_per_month")}
        if gpus is not None:
            body["gpus"] = _figure("--gpus", gpus, int, "a whole number")
        if usd_per_month is not None:
            body["usd_per_month"] = _figure("--usd-per-month", usd_per_month, float, "a number")
        found = api.request("PUT", f"/v1/projects/{segment(project)}/quota", document=body)
        emit(found, output, lambda document: projects_table([document]))


def _figure(name: str, text: str, kind: type[int] | type[float], what: str) -> float | None:
    if text == NONE:
        return None
    try:
        return finite(kind(text))
    except ValueError:
        raise InvalidValueError(name, text, f"{what} of at least 0, or {NONE}") from None


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to `bace`."""
    app.add_typer(project_app, rich_help_panel=panel)
