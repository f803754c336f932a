"""`python -m service.cli.testbed up FILE`, `exec REGION -- COMMAND`, `measure FILE`, `down`: slow links by hand."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import psutil

from service.cli.stack import interruptible
from service.cli.testbed.bed import END_PATIENCE_S, BedError, bed_of, started_keeper
from service.cli.testbed.keeper import address_of, keep
from service.cli.testbed.measure import measure
from service.cli.testbed.namespaces import Namespace, existing, remove_stale
from service.cli.testbed.network import Network, NetworkError, network_from, network_from_file

DETACHED = "--detached"


def main(arguments: Sequence[str] | None = None) -> int:
    """The commands. 0 done, 1 the machine does not let us, 2 the file is wrong, otherwise as the executed command."""
    parser = argparse.ArgumentParser(prog="python -m service.cli.testbed", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, told in (
        ("up", "make the bed of FILE and leave it"),
        ("measure", "make it, measure, remove it"),
    ):
        commands.add_parser(name, help=told).add_argument("file", type=Path)
    commands.add_parser("down", help="remove the bed that is up, and end what runs in it")
    execute = commands.add_parser("exec", help="run a command in a region of the bed that is up")
    execute.add_argument("region")
    execute.add_argument("words", nargs="+", metavar="COMMAND")
    keeping = commands.add_parser("keep", help="keep the bed whose network is the first line of the input")
    keeping.add_argument(DETACHED, action="store_true", help="until a signal, not until the input ends")
    given = parser.parse_args(arguments)
    try:
        if given.command == "up":
            return _up(network_from_file(given.file))
        if given.command == "measure":
            return _measure(network_from_file(given.file))
        if given.command == "exec":
            return _execute(given.region, given.words)
        if given.command == "keep":
            return _keep(given.detached)
        return _down()
    except NetworkError as error:
        print(error, file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(error.cmd)}: {error.stderr.strip()}", file=sys.stderr)
        return 1
    except (OSError, BedError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _up(network: Network) -> int:
    if spaces := _by_hand():
        raise BedError(f"a bed is up already (process {spaces[0].keeper}): `down` removes it")
    keeper = started_keeper(network, DETACHED)
    for region in network.regions:
        print(f"{region}: {address_of(network, region)}")
    print(f"kept by process {keeper.pid}; `exec REGION -- COMMAND` runs a command there, `down` ends it")
    return 0


def _measure(network: Network) -> int:
    with interruptible(), bed_of(network) as bed:
        for link in network.links:
            print(json.dumps(asdict(measure(bed, link))), flush=True)
    return 0


def _execute(region: str, words: Sequence[str]) -> int:
    kept = _by_hand()
    for space in kept:
        if space.region == region:
            os.execvp("ip", [*space.prefix, *words])  # noqa: S606, S607 - no shell is wanted
    there = ", ".join(space.region for space in kept) or "none: `up FILE` makes a bed"
    raise BedError(f"region {region!r}: there is no such region; there are {there}")


def _keep(detached: bool) -> int:
    network = network_from(json.loads(sys.stdin.readline()))
    with interruptible():
        keep(network, lambda: print("up", flush=True), None if detached else sys.stdin.fileno())
    return 0


def _down() -> int:
    processes = [psutil.Process(pid) for pid in {space.keeper for space in _by_hand()}]
    for process in processes:
        process.send_signal(signal.SIGTERM)
    psutil.wait_procs(processes, timeout=END_PATIENCE_S)
    remove_stale()
    return 0


def _by_hand() -> list[Namespace]:
    """Those of the bed that `up` has made."""
    return [space for space in existing() if DETACHED in space.keeper_words]


if __name__ == "__main__":
    sys.exit(main())
