"""`bace demo --wan`: the demonstration in a test bed of networks that are as far apart as continents are.

Every region is a network namespace, and every message between stages crosses a link with the latency and the
bandwidth that the plan was made for: a link carries what it was granted, no more.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from scheduler.spec.scenario import Scenario, load_scenario
from service.cli.demo import (
    OFFER,
    Document,
    passing_stack,
    say,
    start_agents,
    start_told_server,
    tell,
    train,
)
from service.cli.examples import example
from service.cli.exits import CommandError, Exit
from service.cli.local import AgentPlan
from service.cli.output import show
from service.cli.testbed.bed import Bed, BedError, bed_of
from service.cli.testbed.network import Link, Network

SCENARIO = "scenarios/three-continents.yaml"
JOB = "jobs/wan_demo.yaml"
SLOTS = 1
"""CPU slots of each region: fewer than the job has stages, and no more than those have cores."""


def run_wan_demo(port: int | None, steps: int | None, result: Path) -> None:
    """As `run_demo`, over slow links. Raises CommandError where it fails, or the machine does not let us."""
    _require_namespaces()
    scenario = load_scenario(example(SCENARIO))
    try:
        with bed_of(network_of(scenario)) as bed, passing_stack() as stack:
            for link in bed.network.links:
                say(f"{link.src} → {link.dst}: {link.latency_ms:g} ms, {link.mbps:g} Mbit/s")
            offer = ("--cpu-slots", str(SLOTS), *OFFER)
            server = start_told_server(stack, stack.folder, port, scenario)
            spaces = {region: bed.namespace(region) for region in bed.network.regions}
            server_port = server.url.rpartition(":")[2]
            names = [space.name for space in spaces.values()]
            stack.start("door", ["service.cli.testbed.door", server_port, *names], {})
            start_agents(
                server,
                [
                    AgentPlan(f"{region}-1", region, offer, bed.address(region), space.prefix)
                    for region, space in spaces.items()
                ],
            )
            tell(train(server, JOB, steps, lambda placement: grant(bed, placement)), result)
            show(f"The dashboard was at {server.url}.")
    except BedError as error:
        raise CommandError(
            f"The test bed could not be made: {error}",
            Exit.FAILED,
            hint="It needs Linux, root, iproute2 and /dev/net/tun.",
        ) from error


def network_of(scenario: Scenario) -> Network:
    """The regions and links of a scenario as a bed."""
    links = tuple(
        Link(src=link.src, dst=link.dst, latency_ms=link.latency_s * 1e3, mbps=link.capacity_bps / 1e6)
        for link in scenario.cluster.links.values()
    )
    return Network(regions=tuple(scenario.cluster.regions), links=links)


def grant(bed: Bed, placement: Document) -> None:
    """Let the links of a placement carry what they were granted, in both directions."""
    granted = {(cut["src"], cut["dst"]): cut["bandwidth_bps"] / 1e6 for cut in placement["cuts"]}
    for link in bed.network.links:
        mbps = granted.get((link.src, link.dst), granted.get((link.dst, link.src)))
        if mbps is not None:
            bed.change(link.model_copy(update={"mbps": mbps}))
            say(f"{link.src} → {link.dst} carries {mbps:.4g} Mbit/s from now on: what the plan was granted.")


def _require_namespaces() -> None:
    """Raises CommandError."""
    lacking = [
        what
        for what, there in (
            ("Linux", sys.platform == "linux"),
            ("root (sudo)", hasattr(os, "geteuid") and os.geteuid() == 0),
            ("`ip` of iproute2", shutil.which("ip") is not None),
            ("/dev/net/tun", Path("/dev/net/tun").exists()),
        )
        if not there
    ]
    if lacking:
        raise CommandError(
            f"`bace demo --wan` makes network namespaces, which here lacks {', '.join(lacking)}.",
            Exit.USAGE,
            hint="`bace demo` without --wan runs anywhere.",
        )
