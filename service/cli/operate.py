"""`bace server` and `bace migrate`: what an operator runs. The settings are BACE_* variables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer

from service.cli.exits import CommandError, Exit
from service.cli.extras import need_server
from service.cli.output import Format, Output, emit
from service.cli.variables import warn_of_unread


class Role(StrEnum):
    """What a server process does."""

    API = "api"
    CONTROL = "control"
    ALL = "all"


def server(
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on (BACE_HOST).")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="Port (BACE_PORT).")] = None,
    role: Annotated[
        Role | None, typer.Option("--role", help="The API, the control loops, or both (BACE_ROLE).")
    ] = None,
) -> None:
    """Run a server: the API, the dashboard and the control loops. Everything else is set by BACE_* variables.

    Several may share a PostgreSQL database; of those that run the control loops one leads.
    """
    need_server()
    warn_of_unread()
    from service.server import serve
    from service.settings import Settings

    given = {
        name: value for name, value in (("host", host), ("port", port), ("role", role)) if value is not None
    }
    with _told():
        serve(Settings.model_validate({**Settings().model_dump(), **given}))


def migrate(output: Output = Format.TABLE) -> None:
    """Bring the database to the schema of this version."""
    need_server()
    from service.server import migrate_database
    from service.settings import Settings

    with _told():
        revision = migrate_database(Settings())
    emit(
        {"revision": revision},
        output,
        lambda document: [f"The database is at schema {document['revision']}."],
    )


def register(app: typer.Typer, run: str, care: str) -> None:
    """Add the commands to `bace`."""
    app.command(rich_help_panel=run)(server)
    app.command(rich_help_panel=care)(migrate)


@contextmanager
def _told() -> Iterator[None]:
    """Turn what settings and database refuse into words."""
    from pydantic import ValidationError

    from service.errors import ServiceError

    try:
        yield
    except ValidationError as error:
        lines = [_setting_error(entry["loc"], entry["msg"], entry["input"]) for entry in error.errors()]
        raise CommandError("\n".join(lines), Exit.USAGE) from None
    except ServiceError as error:
        raise CommandError(error.detail, Exit.FAILED) from None


def _setting_error(location: tuple[int | str, ...], message: str, value: object) -> str:
    from service.errors import without_kind

    name = "_".join(str(part) for part in location)
    said = without_kind(message)
    return f"BACE_{name.upper()}: {value!r} is not valid: {said}" if name else said
