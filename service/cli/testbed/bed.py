"""A bed for the length of a `with` block."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from service.cli.testbed.keeper import address_of
from service.cli.testbed.namespaces import MODULE, Namespace
from service.cli.testbed.network import Link, Network

END_PATIENCE_S = 20.0


class BedError(Exception):
    """The bed could not be made: what the machine said."""


def started_keeper(network: Network, *options: str) -> subprocess.Popen[str]:
    """The process that keeps a bed, once the bed is there. Raises BedError."""
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE, "keep", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us: we take it down in order
    )
    try:
        if process.stdin and process.stdout:
            process.stdin.write(network.model_dump_json() + "\n")
            process.stdin.flush()
            if not process.stdout.readline():
                raise BedError(process.communicate(timeout=END_PATIENCE_S)[1].strip())
    except BaseException:
        process.communicate(timeout=END_PATIENCE_S)
        raise
    return process


class Bed:
    """Regions that are joined by slow links, kept by the process `keeper`. It ends with us, however we end."""

    def __init__(self, network: Network, keeper: subprocess.Popen[str]) -> None:
        self.network = network
        self._keeper = keeper

    def namespace(self, region: str) -> Namespace:
        """Where the programs of a region are to run."""
        return Namespace(self._keeper.pid, region)

    def address(self, region: str) -> str:
        """Where other regions reach it."""
        return address_of(self.network, region)

    def change(self, link: Link) -> None:
        """Let one direction be like `link` for what comes from now on."""
        if self._keeper.stdin is not None:
            self._keeper.stdin.write(link.model_dump_json() + "\n")
            self._keeper.stdin.flush()


@contextlib.contextmanager
def bed_of(network: Network) -> Iterator[Bed]:
    """A bed for the length of the block; what still runs in it then is ended. BedError where it cannot be had."""
    keeper = started_keeper(network)
    try:
        yield Bed(network, keeper)
    finally:
        keeper.communicate(timeout=END_PATIENCE_S)  # closes its input, which ends it
