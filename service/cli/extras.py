"""What an installation may lack: told in words, with the command that adds it."""

from __future__ import annotations

import importlib.util

from service.cli.exits import CommandError, Exit

SERVER_MODULES = ("fastapi", "sqlalchemy", "uvicorn", "ortools")


def need_server() -> None:
    """Raise CommandError where the extra `server` is not installed."""
    missing = [name for name in SERVER_MODULES if not _is_installed(name)]
    if missing:
        raise lacking(missing[0], "server")


def lacking(module: str, extra: str) -> CommandError:
    """The error of a command whose extra is not installed."""
    return CommandError(
        f"This needs {module}, which is not installed here.",
        Exit.FAILED,
        hint=f"Install it with: pip install 'bacepipe[{extra}]'",
    )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
