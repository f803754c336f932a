"""`bace up`: a server and local agents that stay until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from service.cli.demo import raise_world, say, take_down, train
from service.cli.demo_report import report_page
from service.cli.home import home, only_one_up, remove_address, write_address
from service.cli.local import AgentPlan, LocalServer, start_server
from service.cli.output import heading, show
from service.cli.stack import Stack, interruptible

LOOK_S = 1.0
LOCAL_REGION = "local"


def run_up(port: int | None, slots: int | None) -> None:
    """A server whose data stays in BACE_HOME, with one agent for this machine.

    The agent offers the GPUs, or `slots` CPU slots; one for each core where there is no GPU.
    """
    with only_one_up(), _stack(home()) as stack:
        say("Starting the server …")
        server = start_server(stack, home(), port, {})
        if slots is None and shutil.which("nvidia-smi") is None:
            slots = os.cpu_count() or 1
        offer = ("--stop-workers-on-exit", *(() if slots is None else ("--cpu-slots", str(slots))))
        with server.api() as api:
            if LOCAL_REGION not in {region["region"] for region in api.pages("/v1/regions")}:
                api.request("PUT", f"/v1/regions/{LOCAL_REGION}", document={})
        say("Starting an agent for this machine; it measures what its devices sustain …")
        server.start_agents([AgentPlan(f"{LOCAL_REGION}-1", LOCAL_REGION, offer)], {})
        with _announced(server):
            server.wait_for_nodes()
            _stay(server)


def run_up_demo(port: int | None) -> None:
    """The demonstration, its world staying up afterwards; the data goes with it."""
    with (
        only_one_up(),
        tempfile.TemporaryDirectory(prefix="bacepipe-demo-") as folder,
        _stack(Path(folder)) as stack,
    ):
        server = raise_world(stack, Path(folder), port)
        with _announced(server):
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


@contextlib.contextmanager
def _announced(server: LocalServer) -> Iterator[None]:
    """While it lasts, `bace` in another terminal finds the server by itself."""
    write_address(server.url, server.home)
    try:
        yield
    finally:
        remove_address(server.url)


def _stay(server: LocalServer) -> None:
    """Until Ctrl-C, or until a member dies (CommandError)."""
    show(
        heading("bacepipe is up"),
        Text.assemble(("Dashboard: ", "bold"), server.dashboard),
        "In another terminal: bace nodes, bace submit FILE --follow, bace jobs. Ctrl-C ends it.",
    )
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            server.stack.check()
            time.sleep(LOOK_S)
