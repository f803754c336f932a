"""`bace demo`, `up` and `agent`: what starts processes. Each imports what it needs when it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from service.cli.exits import CommandError, Exit
from service.cli.extras import need_server
from service.cli.variables import warn_of_unread

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

PortOption = Annotated[
    int | None,
    typer.Option("--port", min=1, max=65535, help="Of the server; by default 8642, or a free one."),
]


def demo(
    port: PortOption = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=2, help="Train so many steps instead of the example's.")
    ] = None,
    result: Annotated[Path, typer.Option("--result", help="Where the figures are written.")] = Path(
        "demo-result.json"
    ),
    wan: Annotated[
        bool,
        typer.Option("--wan", help="With networks of their own, as far apart as continents (Linux, root)."),
    ] = False,
) -> None:
    """Train a small model over regions simulated on this machine, show everything, and leave nothing behind."""
    need_server()
    warn_of_unread()
    if wan:
        from service.cli.wan_demo import run_wan_demo

        run_wan_demo(port, steps, result)
    else:
        from service.cli.demo import run_demo

        run_demo(port, steps, result)


def up(
    with_demo: Annotated[
        bool, typer.Option("--demo", help="The demonstration's three regions and its job.")
    ] = False,
    cpu_slots: Annotated[
        int | None, typer.Option("--cpu-slots", min=1, help="Offer CPU slots instead of this machine's GPUs.")
    ] = None,
    port: PortOption = None,
) -> None:
    """Start a server and an agent for this machine; they stay until Ctrl-C."""
    need_server()
    warn_of_unread()
    from service.cli.up import run_up, run_up_demo

    if with_demo and cpu_slots is not None:
        raise CommandError(
            "--cpu-slots is not for --demo, whose regions have slots of their own.", Exit.USAGE
        )
    if with_demo:
        run_up_demo(port)
    else:
        run_up(port, cpu_slots)


def agent(context: typer.Context) -> None:
    """Run the agent of a GPU node (all options are the agent's own: `bace agent --help`)."""
    warn_of_unread()
    os.execv(sys.executable, [sys.executable, "-m", "agents", *context.args])  # noqa: S606 - no shell is wanted


def register(app: typer.Typer, run: str) -> None:
    """Add the commands to `bace`."""
    app.command(rich_help_panel=run)(demo)
    app.command(rich_help_panel=run)(up)
    app.command(rich_help_panel=run, context_settings=PASS_ON, add_help_option=False)(agent)
