"""`bace-agent`: runs the agent; with `doctor` or `listen` behind the options, one of its checks instead.

Exit codes: 0 done · 1 the doctor found something wrong · 2 a setting is wrong · 3 the agent cannot begin.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import structlog
import typer
from rich.console import Console

from agents.client import ServerClient, checked_url, is_loopback
from agents.doctor import Finding, Peer, examine
from agents.environment import passable
from agents.errors import AgentError, SettingsError
from agents.identity import Credentials, IdentityFile
from agents.inventory import Gpu, read_gpus, visible_gpus
from agents.listen import listening
from agents.processes import Log
from agents.settings import (
    DEFAULT_PORTS,
    AgentSettings,
    NodeOptions,
    complete_nodes,
    node_options,
    nodes_from_file,
    parse_ports,
)
from agents.start import default_work_dir, run_agent
from agents.workdir import IDENTITY_FILE

_TOKEN = re.compile(r"[!-~]{1,512}")

EXIT_FOUND, EXIT_SETTINGS, EXIT_CANNOT_BEGIN = 1, 2, 3

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="The node daemon of bacepipe. Options come before a command: bace agent --region eu-west-1 doctor.",
)


@dataclass(frozen=True, slots=True)
class Invocation:
    """What the options came to; the subcommands' common ground."""

    settings: AgentSettings
    gpus: tuple[Gpu, ...]


@app.callback(invoke_without_command=True)
def agent(
    context: typer.Context,
    url: Annotated[str, typer.Option(envvar="BACE_URL", help="The server.")] = "http://127.0.0.1:8642",
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the token to join with, in the place of BACE_TOKEN."),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(envvar="BACE_CA_FILE", help="The authority (PEM) of the server's certificate."),
    ] = None,
    region: Annotated[str | None, typer.Option(help="Where the nodes stand.")] = None,
    node: Annotated[
        list[str] | None, typer.Option(help="A node this agent stands for; may be repeated.")
    ] = None,
    nodes: Annotated[
        Path | None, typer.Option(help="A YAML file of nodes, each with settings of its own.")
    ] = None,
    cpu_slots: Annotated[int | None, typer.Option(help="Slots of a node without GPUs.")] = None,
    gpu_type: Annotated[str | None, typer.Option(help="Name of the GPU or slot type.")] = None,
    address: Annotated[str | None, typer.Option(help="Where other nodes reach the workers here.")] = None,
    interface: Annotated[str | None, typer.Option(help="The network interface of the workers.")] = None,
    ports: Annotated[str, typer.Option(help="Ports the workers may listen on.")] = DEFAULT_PORTS,
    work_dir: Annotated[Path | None, typer.Option(help="The agent's own folder.")] = None,
    secrets_dir: Annotated[
        Path | None, typer.Option(help="What file: secrets of jobs are read from.")
    ] = None,
    worker_env: Annotated[
        list[str] | None,
        typer.Option(
            envvar="BACE_WORKER_ENV",
            help="A variable of this environment that workers get, such as AWS_CONFIG_FILE; may be repeated.",
        ),
    ] = None,
    power_w: Annotated[float | None, typer.Option(help="Draw of one busy GPU or slot.")] = None,
    idle_w: Annotated[float | None, typer.Option(help="Draw of one idle GPU or slot.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of one GPU or slot, such as 4GB.")] = None,
    sustained_flops: Annotated[
        float | None, typer.Option(help="FLOP/s of one GPU or slot; measured if not given.")
    ] = None,
    probe_seconds: Annotated[float, typer.Option(min=0.1, max=600, help="How long to measure.")] = 3.0,
    stop_workers_on_exit: Annotated[
        bool, typer.Option("--stop-workers-on-exit", help="Take the workers down with the agent.")
    ] = False,
) -> None:
    """Join the server, and run what it asks for, until SIGTERM. Workers go on for the next agent to adopt."""
    general = {
        "region": region,
        "gpu_type": gpu_type,
        "cpu_slots": cpu_slots,
        "address": address,
        "interface": interface,
        "ports": ports,
        "power_w": power_w,
        "idle_w": idle_w,
        "memory": memory,
        "sustained_flops": sustained_flops,
    }
    folder = work_dir or default_work_dir(os.environ)
    with _told():
        settings = AgentSettings(
            url=checked_url(url),
            token=_token(os.environ.get("BACE_TOKEN", ""), token_file, folder),
            work_dir=folder,
            secrets_dir=secrets_dir or folder / "secrets",
            nodes=complete_nodes(node_options(general), _named(node or [], nodes)),
            probe_seconds=probe_seconds,
            stop_workers_on_exit=stop_workers_on_exit,
            worker_env=passable(worker_env or [], os.environ),
            ca_file=ca_file,
        )
    gpus = visible_gpus(read_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    context.obj = Invocation(settings, gpus)
    if context.invoked_subcommand is None:
        _run(context.obj)


@app.command()
def doctor(
    context: typer.Context,
    peer: Annotated[
        list[str] | None, typer.Option(help="ADDRESS:PORT of another node; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document, for programs.")] = False,
) -> None:
    """Check what keeps these nodes from working, and say what to do."""
    invocation: Invocation = context.obj
    settings = invocation.settings
    console = Console()
    findings = []
    with _told():
        peers = [_peer(text) for text in peer or []]
        with (
            listening(settings.nodes) as ours,
            ServerClient(settings.url, _shown(settings), ca_file=settings.ca_file) as client,
        ):
            for finding in examine(settings, client, invocation.gpus, peers, set(ours.values())):
                findings.append(finding)
                if not as_json:
                    _show(console, finding)
    if as_json:
        typer.echo(json.dumps({"findings": [asdict(finding) for finding in findings]}))
    if not all(finding.ok for finding in findings):
        raise typer.Exit(EXIT_FOUND)


@app.command()
def listen(context: typer.Context) -> None:
    """Answer the doctors of other nodes on the first free port of each node, until Ctrl-C."""
    invocation: Invocation = context.obj
    ending = _ending()
    with listening(invocation.settings.nodes) as where:
        if not where:
            typer.echo("none of the nodes' ports can be bound: see `doctor`", err=True)
            raise typer.Exit(EXIT_CANNOT_BEGIN)
        named = ", ".join(f"{node} on port {port}" for node, port in where.items())
        typer.echo(f"listening for {named}; Ctrl-C ends it")
        ending.wait()


def main(name: str = "bace-agent") -> None:
    """The command, under the name by which it was called."""
    app(prog_name=name)


def _run(invocation: Invocation) -> None:
    settings = invocation.settings
    log = _configured_log()
    if settings.url.startswith("http:") and not is_loopback(settings.url):
        log.warning("the token travels unencrypted: use https, or a tunnel", url=settings.url)
    if os.geteuid() == 0:
        log.warning("running as root: workers have its rights, too; a user of its own is safer")
    ending = _ending()
    with _told():
        run_agent(settings, invocation.gpus, log, ending)


def _show(console: Console, finding: Finding) -> None:
    console.print("ok  " if finding.ok else "BAD ", style="green" if finding.ok else "bold red", end="")
    console.print(finding.name, "·", finding.detail, highlight=False, markup=False, soft_wrap=True)
    if finding.fix:
        console.print("      →", finding.fix, highlight=False, markup=False, soft_wrap=True)


def _ending() -> threading.Event:
    """Set by SIGTERM and SIGINT."""
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    return ending


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Ends the program with the message of an AgentError instead of a traceback."""
    try:
        yield
    except AgentError as error:
        typer.echo(f"bace-agent: {error}", err=True)
        code = EXIT_SETTINGS if isinstance(error, SettingsError) else EXIT_CANNOT_BEGIN
        raise typer.Exit(code) from error


def _named(names: list[str], file: Path | None) -> list[NodeOptions]:
    if file is not None and names:
        raise SettingsError("--node", names, "either --node or --nodes FILE")
    if file is not None:
        return nodes_from_file(file)
    return [node_options({"name": name}) for name in names or [_host_name()]]


def _host_name() -> str:
    name = re.sub(r"[^a-z0-9._-]+", "-", socket.gethostname().lower()).strip("-._")
    return name[:63] or "node"


def _shown(settings: AgentSettings) -> str:
    return Credentials(settings.token, IdentityFile(settings.work_dir / IDENTITY_FILE)).token


def _token(token: str, file: Path | None, work_dir: Path) -> str:
    """What is given to join with; nothing (empty) is enough for an agent that has its identity.

    Never an option's value: everybody on the machine can read the list of processes.
    """
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError("--token-file", str(file), f"a readable file ({error})") from error
    token = token.strip()
    if not token and IdentityFile(work_dir / IDENTITY_FILE).read() is not None:
        return ""
    if not _TOKEN.fullmatch(token):
        expected = "a token to join with (or BACE_TOKEN); see `bace node token create`"
        raise SettingsError("--token-file", file and str(file), expected)
    return token


def _peer(text: str) -> Peer:
    address, _, port = text.rpartition(":")
    if not address or not port.isdigit():
        raise SettingsError("--peer", text, "ADDRESS:PORT, such as 10.0.0.7:29500")
    return Peer("", address, parse_ports(f"{port}-{port}")[0])


def _configured_log() -> Log:
    """For people on a terminal, as JSON lines elsewhere; always on standard error."""
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    log: Log = structlog.get_logger()
    return log
