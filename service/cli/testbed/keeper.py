"""The process that keeps a bed: it makes the namespaces and devices, relays, and takes all of it away at its end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from service.cli.stack import uninterrupted
from service.cli.testbed.devices import tun
from service.cli.testbed.namespaces import Namespace, ip, remove_stale
from service.cli.testbed.network import Link, Network
from service.cli.testbed.relay import DelayLine, relay, run_in_real_time

SETTINGS = {
    "net/ipv4/tcp_congestion_control": "reno",
    "net/ipv4/tcp_slow_start_after_idle": "0",
    "net/ipv4/tcp_no_metrics_save": "1",
    "net/ipv4/tcp_rmem": "4096 4194304 16777216",
    "net/ipv4/tcp_wmem": "4096 4194304 16777216",
    "net/ipv6/conf/all/disable_ipv6": "1",
}
"""Of each namespace, as of hosts that are set up for long links: no new slow start after a pause, and buffers that hold
a round trip's worth of bytes (docs/pipelines.md). Reno is the congestion control that every namespace may have; on
links that lose nothing its window only grows. (BBR would pace what such a link takes at once.)"""


def address_of(network: Network, region: str) -> str:
    """The address of a region in its bed, from the range for tests of networks (RFC 2544)."""
    return f"198.18.0.{network.regions.index(region) + 1}"


def keep(network: Network, announce: Callable[[], None], control: int | None) -> None:
    """Make the bed, call `announce`, and relay until a signal or until the file `control` ends.

    A line on `control` is a link as it is to be from then on, as JSON.

    Raises OSError or subprocess.CalledProcessError where the machine does not let it; nothing is left then either.
    """
    remove_stale()
    with contextlib.ExitStack() as made:
        lines = _make(network, made)
        announce()
        run_in_real_time()
        relay(lines.values(), control, lambda said: _change(lines, said))


def _change(lines: Mapping[tuple[str, str], DelayLine], said: bytes) -> None:
    for each in said.splitlines():
        link = Link.model_validate_json(each)
        line = lines[link.src, link.dst]
        line.latency_s, line.seconds_a_byte = link.latency_ms / 1e3, 8 / (link.mbps * 1e6)


def _make(network: Network, made: contextlib.ExitStack) -> dict[tuple[str, str], DelayLine]:
    spaces = {region: Namespace(os.getpid(), region) for region in network.regions}
    for space in spaces.values():
        made.callback(_remove, space)
        space.create()
        with space.inside():
            for name, value in SETTINGS.items():
                (Path("/proc/sys") / name).write_text(value)
    joined = {link.src for link in network.links}
    for region in (
        set(network.regions) - joined
    ):  # those that are joined have it on the devices of their links
        ip("-n", spaces[region].name, "address", "add", address_of(network, region), "dev", "lo")
    lines = {}
    for there, back in network.pairs:
        here, far = (_end(network, spaces, link, made) for link in (there, back))
        for link, source, target in ((there, here, far), (back, far, here)):
            lines[link.src, link.dst] = DelayLine(
                source, target, link.latency_ms / 1e3, 8 / (link.mbps * 1e6)
            )
    return lines


def _end(network: Network, spaces: Mapping[str, Namespace], link: Link, made: contextlib.ExitStack) -> int:
    own, other = (address_of(network, region) for region in (link.src, link.dst))
    file = tun(spaces[link.src], f"wan{network.regions.index(link.dst)}", own, other)
    made.callback(os.close, file)
    return file


def _remove(space: Namespace) -> None:
    with uninterrupted():
        space.remove()
