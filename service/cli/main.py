"""`bace`: every command by its name. Nothing heavy is imported before the command that needs it runs.

So `bace agent` and `bace jobs` work with the base installation: no server, no planner, no torch.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from service.cli import (
    accounts,
    audit,
    cluster,
    doctor,
    jobs,
    node,
    operate,
    prices,
    processes,
    projects,
    schedule,
    tokens,
)
from service.cli.command import Command, use
from service.cli.exits import CommandError, Exit
from service.cli.extras import lacking
from service.cli.output import error_console, printable

EPILOG = (
    "Addresses: BACE_URL (default http://127.0.0.1:8642) and BACE_TOKEN; on the machine of `bace up` neither is "
    "needed. Exit codes: 0 done, 1 failed, 2 bad input, 3 not found, 4 not authorised, 5 no server, 130 interrupted."
)

RUN, JOBS, CLUSTER, STUDY, CARE = "Run", "Jobs", "Cluster", "Study", "Care"

LATE_COMMANDS = {
    "replay": ("service.cli.replay", "Replay a trace or a list of jobs under one or more policies."),
    "compare": ("service.cli.replay", "Compare the results of replays."),
    "bench": ("service.cli.bench", "Run the benchmark of the policies over its grids, and report."),
    "bench-report": (
        "service.cli.bench_report",
        "Report on what a study of the benchmark has come to so far.",
    ),
}
"""Commands whose module needs the planner extra: name -> (module, help)."""


class Commands(TyperGroup):
    """The commands, and how they end: errors in words and an exit code of the table, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except CommandError as error:
            print_error(error)
            raise typer.Exit(int(error.exit_code)) from None
        except KeyboardInterrupt:
            error_console().print("Interrupted.")
            raise typer.Exit(int(Exit.INTERRUPTED)) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; a late one is loaded here, and only here."""
        if args and args[0] in LATE_COMMANDS:
            return args[0], _load(args[0]), args[1:]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="bace",
    cls=Commands,
    help="Schedules the training of large language models over GPU clusters in several regions.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Entry point of the `bace` script."""
    app()


def print_error(error: CommandError) -> None:
    """What is wrong, field by field, and what to do, on standard error."""
    out = error_console()
    out.print(Text("Error: ", style="bold red") + Text(printable(error.message), style=""))
    for field in error.fields:
        place = f"{printable(field.pointer)}: " if field.pointer else ""
        out.print(Text.assemble("  ", (place, "bold"), printable(field.detail)))
    if error.hint:
        out.print(Text(error.hint, style="dim"))


def _version(shown: bool) -> None:
    if shown:
        typer.echo(importlib.metadata.version("bacepipe"))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of `bace` itself."""


def _load(name: str) -> Any:
    module_name, _ = LATE_COMMANDS[name]
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"service", "scheduler"}:
            raise
        raise lacking(str(error.name), "planner") from None
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(name, cls=Command)(getattr(module, name.replace("-", "_")))
    return typer.main.get_command(single)


def _stub(name: str) -> None:
    """Show a late command in the help; what runs is loaded by `Commands.resolve_command`."""

    def late() -> None:
        raise AssertionError(name)

    app.command(name, help=LATE_COMMANDS[name][1], rich_help_panel=STUDY)(late)


processes.register(app, RUN)
jobs.register(app, JOBS)
schedule.register(app, JOBS)
cluster.register(app, CLUSTER)
node.register(app, CLUSTER)
prices.register(app, CLUSTER)
for _name in LATE_COMMANDS:
    _stub(_name)
doctor.register(app, CARE)
operate.register(app, RUN, CARE)
projects.register(app, CARE)
accounts.register(app, CARE)
tokens.register(app, CARE)
audit.register(app, CARE)
use(app)

if __name__ == "__main__":
    main()
