"""What keeps a node from working, and what to do about it: every finding with its remedy.

The listener of `listen` stands while the checks run, so that two doctors at once find each other; where no
doctor runs, `bace-agent … listen` on the other node answers.
"""

from __future__ import annotations

import email.utils
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import httpx
import psutil

from agents.client import ServerClient
from agents.errors import SettingsError, UnreachableError
from agents.inventory import Gpu, inspect, interface_of, own_address
from agents.listen import greeting_of
from agents.settings import AgentSettings, NodeSettings
from agents.workdir import WorkDir

NODES_PATH = "/v1/nodes"
WHOAMI_PATH = "/v1/whoami"
MAX_CLOCK_OFFSET_S = 5.0
MIN_FREE_BYTES = 5e9
TORCH_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: `detail` is what was seen, `fix` what to do where it is not ok."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """Where another node's workers are to be reached. `name` is empty where only the address is known."""

    name: str
    address: str
    port: int


def examine(
    settings: AgentSettings,
    client: ServerClient,
    gpus: Sequence[Gpu],
    peers: Sequence[Peer],
    listening_on: Container[int],
) -> Iterator[Finding]:
    """All checks, one after the other, as they come in.

    `peers` are looked for beside those the server knows; `listening_on` are the ports that we hold ourselves.
    """
    yield from check_server(client)
    yield from check_work_dir(settings)
    yield check_torch()
    for node in settings.nodes:
        yield check_devices(node, gpus, settings.url)
        yield from check_address(node, settings.url)
        yield check_ports(node, listening_on)
    own = {node.node_id for node in settings.nodes}
    known: list[Peer] | None = []
    fix = "Name the nodes to look for by --peer ADDRESS:PORT"
    try:
        known = known_peers(client)
    except UnreachableError:
        yield Finding("peers", False, "the server, which knows them, does not answer", fix)
    if known is None:
        yield Finding("peers", True, "the server shows this token no other nodes", fix)
    for peer in chain(peers, known or []):
        if peer.name not in own:
            yield check_peer(peer, own)


def check_server(client: ServerClient, now_s: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Is it there, do the clocks agree, and does it take the token?"""
    asked_s = now_s()
    try:
        health = client.get("/healthz")
    except UnreachableError as error:
        yield Finding(
            "server", False, str(error), "Is the server running, and does --url (BACE_URL) name it?"
        )
        return
    answered_s = now_s()
    yield Finding(
        "server",
        health.is_success,
        f"{client.url} answers {health.status_code} in {1000 * (answered_s - asked_s):.0f} ms",
        "" if health.is_success else "Look at the server's log; is the address that of bacepipe?",
    )
    date = health.headers.get("Date")
    if date is not None:
        yield _clock((asked_s + answered_s) / 2, _epoch(date))
    yield _token(client.get(WHOAMI_PATH))


def _token(answer: httpx.Response) -> Finding:
    fix = "Make one with `bace node token create`, and give it by --token-file or BACE_TOKEN"
    if not answer.is_success:
        return Finding("token", False, f"the server does not take it ({answer.status_code})", fix)
    try:
        role = answer.json()["role"]
    except (ValueError, KeyError, TypeError):
        return Finding("token", False, "the answer is not bacepipe's", "Does --url name a bacepipe server?")
    ok = role == "agent"
    return Finding("token", ok, f"of role {role}", "" if ok else fix)


def _epoch(date: str) -> float:
    return email.utils.parsedate_to_datetime(date).timestamp()


def _clock(here_s: float, there_s: float) -> Finding:
    """The Date header has whole seconds, so half a second is its middle."""
    offset_s = here_s - (there_s + 0.5)
    ok = abs(offset_s) <= MAX_CLOCK_OFFSET_S
    return Finding(
        "clock",
        ok,
        f"{abs(offset_s):.0f} s {'ahead of' if offset_s > 0 else 'behind'} the server's",
        "" if ok else "Let both machines follow a time server (chrony, systemd-timesyncd)",
    )


def check_work_dir(settings: AgentSettings) -> Iterator[Finding]:
    """Is the folder ours, and has the disk room?"""
    try:
        work_dir = WorkDir(settings.work_dir)
    except SettingsError as error:
        yield Finding("work folder", False, str(error), "Give another --work-dir")
        return
    yield Finding("work folder", True, str(work_dir.path))
    free_bytes = shutil.disk_usage(work_dir.path).free
    ok = free_bytes >= MIN_FREE_BYTES
    yield Finding(
        "disk",
        ok,
        f"{free_bytes / 1e9:.1f} GB free at {work_dir.path}",
        "" if ok else f"Free some: logs, journals and checkpoints want {MIN_FREE_BYTES / 1e9:.0f} GB",
    )


def check_torch() -> Finding:
    """Can the interpreter of the built-in worker load torch? In a process of its own."""
    command = [sys.executable, "-c", "import torch; print(torch.__version__)"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=TORCH_TIMEOUT_S, check=True, text=True)
    except (subprocess.SubprocessError, OSError) as error:
        stderr = getattr(error, "stderr", None) or str(error)
        last = str(stderr).strip().splitlines()[-1:]
        fix = "`pip install bacepipe[worker]` here (not needed for jobs that bring their own interpreter)"
        return Finding("torch", False, "".join(last), fix)
    return Finding("torch", True, f"torch {done.stdout.strip()} with {sys.executable}")


def check_devices(node: NodeSettings, gpus: Sequence[Gpu], url: str) -> Finding:
    """What would this node offer?"""
    try:
        found = inspect(node, gpus, url)
    except SettingsError as error:
        return Finding(
            f"devices of {node.node_id}", False, str(error), "Give --cpu-slots N, or install the driver"
        )
    detail = (
        f"{found.devices.count} × {found.gpu_type}, {found.memory_bytes / 1e9:.1f} GB, "
        f"{found.idle_w:g}-{found.power_w:g} W each"
    )
    return Finding(f"devices of {node.node_id}", True, detail)


def check_address(node: NodeSettings, url: str) -> Iterator[Finding]:
    """Is the advertised address this machine's, and the interface there?"""
    name = f"address of {node.node_id}"
    try:
        address = node.options.address or own_address(url)
        resolved = socket.gethostbyname(address)
    except (OSError, SettingsError) as error:
        yield Finding(
            name, False, str(error), "Give the address that other nodes reach this one at by --address"
        )
        return
    holder = interface_of(resolved)
    if holder is None:
        detail = f"{address} is not an address of this machine; it has {', '.join(_own_addresses())}"
        yield Finding(name, False, detail, "Right only behind address translation; else give --address")
    else:
        yield Finding(name, True, f"{address} on {holder}")
    wanted = node.options.interface
    if wanted is not None:
        interfaces = psutil.net_if_addrs()
        ok = wanted in interfaces
        fix = "" if ok else f"Give one of {', '.join(sorted(interfaces))} by --interface"
        yield Finding(f"interface of {node.node_id}", ok, wanted if ok else f"there is no {wanted}", fix)


def check_ports(node: NodeSettings, listening_on: Container[int] = ()) -> Finding:
    """Can workers listen on the ports that were promised for them?"""
    ports = range(node.port_first, node.port_last + 1)
    taken = [port for port in ports if port not in listening_on and not _can_bind(port)]
    ok = len(taken) < len(ports)
    detail = f"{len(ports) - len(taken)} of {len(ports)} free in {node.port_first}-{node.port_last}"
    if taken:
        detail += f"; taken: {', '.join(map(str, taken[:10]))}{'…' if len(taken) > 10 else ''}"
    return Finding(f"ports of {node.node_id}", ok, detail, "" if ok else "Give another range by --ports")


def known_peers(client: ServerClient) -> list[Peer] | None:
    """The nodes that the server shows to this token; None where it shows none to it. Raises UnreachableError."""
    try:
        answer = client.get(NODES_PATH)
        items = answer.json()["items"] if answer.is_success else None
    except (ValueError, KeyError, TypeError):
        return None
    if items is None:
        return None
    return [Peer(str(item["node_id"]), str(item["address"]), int(item["port_first"])) for item in items]


def check_peer(peer: Peer, own: Container[str] = ()) -> Finding:
    """Does the other node answer? Refused is half good: the way is open, but nobody listens at present."""
    name = f"reach {peer.name or peer.address}"
    where = f"{peer.address}:{peer.port}"
    try:
        greeting = greeting_of(peer.address, peer.port)
    except ConnectionRefusedError:
        fix = "To be sure of the port, run `bace-agent … listen` on that node and try again"
        return Finding(name, True, f"{where}: the machine answers, nothing listens there now", fix)
    except OSError as error:
        fix = f"Open the port range of {peer.name or 'that node'} to this machine, or correct its --address"
        return Finding(name, False, f"{where}: {error}", fix)
    if greeting in own:
        return Finding(name, True, f"{where}: that is this machine")
    if peer.name and greeting and greeting != peer.name:
        return Finding(
            name, False, f"{where}: node {greeting} answers", "Two nodes advertise one address and port"
        )
    return Finding(name, True, f"{where}: {greeting or 'something'} answers")


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _own_addresses() -> list[str]:
    entries = chain.from_iterable(psutil.net_if_addrs().values())
    return sorted({entry.address for entry in entries if entry.family == socket.AF_INET})
