"""A command as people typed it: what it refuses is told of the option or argument, with its value.

The server and the planner know fields (`expires_in_s`); whoever typed `--ttl 60d` does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperCommand

from scheduler.errors import InvalidValueError
from service.cli.api import Document, ProblemError
from service.cli.exits import CommandError, Exit
from service.errors import without_kind

PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "capacity_bps": ("limit", "estimate"),
    "dst": ("dst", "destination"),
    "expires_in_s": ("ttl", "expires"),
    "idempotency-key": ("key",),
    "latency_s": ("latency",),
    "overlap_s": ("overlap",),
    "share": ("weight",),
}
"""The parameters of commands that a field of the API is made of, where they do not have its name."""


class Command(TyperCommand):
    """Tells refusals in the words of who typed the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = without_kind(error.message)
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except InvalidValueError as error:
            name, _ = _typed(error.field, self.params, ctx.params) or (error.field, None)
            refusal = InvalidValueError(name, error.value, error.expected)
            raise CommandError(str(refusal), Exit.USAGE) from None
        except ProblemError as problem:
            raise _as_typed(problem, self.params, ctx.params) from None


def use(app: typer.Typer) -> None:
    """Make a `Command` of every command of `app` and of its groups."""
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            use(group.typer_instance)


def _as_typed(problem: ProblemError, parameters: Sequence[Any], values: Mapping[str, object]) -> CommandError:
    """The refusal by option, where every field of it is one."""
    lines = []
    for error in problem.errors:
        field = str(error["pointer"]).strip("/")
        found = _typed(field, parameters, values)
        if found is None:
            return problem
        name, value = found
        given = "" if value is None else f"{value!r} is not valid: "
        lines.append(f"{name}: {given}{_expected(field, error)}")
    return CommandError("\n".join(lines), problem.exit_code, hint=problem.hint) if lines else problem


def _typed(field: str, parameters: Sequence[Any], values: Mapping[str, object]) -> tuple[str, object] | None:
    """The option or argument that a field is made of, and what was given (None: nothing was); None if it is of none."""
    names = PARAMETERS.get(field, (field,))
    found = [parameter for parameter in parameters if parameter.name in names]
    if not found:
        return None
    parameter = next((each for each in found if values.get(each.name) is not None), found[0])
    name = max(parameter.opts, key=len)
    return (name if name.startswith("-") else parameter.metavar or name.upper()), values.get(parameter.name)


def _expected(field: str, error: Document) -> str:
    bound = str(error.get("code", "")).startswith(("less_than", "greater_than"))
    return f"{error['detail']} seconds" if bound and field.endswith("_s") else str(error["detail"])
