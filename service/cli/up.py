"""`bace up`: a server and local agents that stay until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from service.cli.demo import raise_world, say, take_down, train
from service.cli.demo_report import report_page
from service.cli.home import home, remove_address, write_address
from service.cli.local import AgentPlan, LocalServer, start_server
from service.cli.output import heading, show
from service.cli.stack import Stack, interruptible

LOOK_S = 1.0
LOCAL_REGION = "local"


def run_up(port: int | None, slots: int | None) -> None:
    """A server whose data stays in BACE_HOME, with one agent for this machine's GPUs, or for CPU slots."""
    with _stack(home()) as stack:
        say("Starting the server …")
        server = start_server(stack, home(), port, {})
        offer = ("--cpu-slots", str(slots)) if slots is not None else ()
        say("Starting an agent for this machine; it measures what its devices sustain …")
        server.start_agents([AgentPlan(f"{LOCAL_REGION}-1", LOCAL_REGION, offer)], {})
        server.wait_for_nodes()
        _stay(server)


def run_up_demo(port: int | None) -> None:
    """The demonstration, its world staying up afterwards; the data goes with it."""
    with tempfile.TemporaryDirectory(prefix="bacepipe-demo-") as folder, _stack(Path(folder)) as stack:
        server = raise_world(stack, Path(folder), port)
        write_address(server.url, server.home)
        show(*report_page(train(server)))
        _stay(server)


@contextlib.contextmanager
def _stack(folder: Path) -> Iterator[Stack]:
    stack = Stack(folder)
    try:
        with interruptible():
            yield stack
    finally:
        take_down(stack)


def _stay(server: LocalServer) -> None:
    """Until Ctrl-C, or until a member dies (CommandError)."""
    write_address(server.url, server.home)
    try:
        show(
            heading("bacepipe is up"),
            Text.assemble(("Dashboard: ", "bold"), server.dashboard),
            "In another terminal: bace nodes, bace submit FILE --follow, bace jobs. Ctrl-C ends it.",
        )
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                server.stack.check()
                time.sleep(LOOK_S)
    finally:
        remove_address(server.url)


def default_slots() -> int:
    """CPU slots of a machine without GPUs: one for each core."""
    return os.cpu_count() or 1
