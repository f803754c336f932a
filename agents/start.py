"""Puts an agent together from its settings: the one place where its parts meet."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from random import SystemRandom
from secrets import token_hex

from agents.client import ServerClient
from agents.daemon import Agent, Identity, SystemClock
from agents.environment import EnvironmentBuilder
from agents.identity import Credentials, IdentityFile
from agents.inventory import Gpu, NodeHardware, count_of_nodes, inspect
from agents.journal import Journal
from agents.lease import Lease
from agents.link_probe_runner import LinkTests
from agents.link_probe_wire import Surroundings
from agents.probe import Measurement, Probe, ProbeTarget
from agents.processes import Log, ProcessTable
from agents.protocol import LINK_TESTS, GpuTypeOffer, NodeOffer
from agents.runtime import LocalLauncher
from agents.settings import AgentSettings, NodeSettings
from agents.state import AgentState
from agents.workdir import WorkDir


def run_agent(settings: AgentSettings, gpus: Sequence[Gpu], log: Log, ending: threading.Event) -> None:
    """Runs an agent until `ending` is set. Raises AgentError where it cannot even begin."""
    work_dir = WorkDir(settings.work_dir)
    work_dir.lock()
    state = AgentState(Journal(work_dir.journal_file))
    clock = SystemClock()
    try:
        hardware = {node.node_id: inspect(node, gpus, settings.url) for node in settings.nodes}
        devices = {node_id: found.devices for node_id, found in hardware.items()}
        environment = EnvironmentBuilder(os.environ, settings.secrets_dir, settings.worker_env)
        table = ProcessTable(state, LocalLauncher(work_dir), work_dir, devices, environment, clock, log)
        probe = Probe(work_dir.probe_file)
        offers = []
        for node in settings.nodes:
            found = hardware[node.node_id]
            measured = _measurement(
                node, found, probe, settings.probe_seconds, clock.epoch_s(), bool(table.alive)
            )
            offers.append(_offer(node, found, measured))
            _tell(log, offers[-1], clock.epoch_s())
        identity = Identity(work_dir.agent_id(), f"boot-{token_hex(8)}", version("bacepipe"), tuple(offers))
        credentials = Credentials(settings.token, IdentityFile(work_dir.identity_file))
        links = LinkTests(offers, Surroundings(time.monotonic, lambda: token_hex(16)), _spawn, log)
        with ServerClient(
            settings.url, credentials.token, ca_file=settings.ca_file, abilities=(LINK_TESTS,)
        ) as client:
            slots = count_of_nodes(hardware)
            lease = Lease(work_dir.lease_file)
            dice = SystemRandom()
            agent = Agent(identity, client, state, table, lease, slots, clock, log, dice, credentials, links)
            agent.run(ending)
            if settings.stop_workers_on_exit:
                agent.stop_workers()
            elif table.alive:
                log.info(
                    "workers go on under their lease", workers=len(table.alive), adopt_with=str(work_dir.path)
                )
    finally:
        state.close()
        work_dir.unlock()


def _spawn(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _offer(node: NodeSettings, found: NodeHardware, measured: Measurement) -> NodeOffer:
    return NodeOffer(
        node_id=node.node_id,
        region=node.region,
        gpu=GpuTypeOffer(
            name=found.gpu_type,
            memory_bytes=found.memory_bytes,
            power_w=found.power_w,
            idle_w=found.idle_w,
            sustained_flops=measured.sustained_flops,
            measured_at_s=measured.measured_at_s,
        ),
        gpus=found.devices.count,
        address=found.address,
        interface=found.devices.interface,
        port_first=node.port_first,
        port_last=node.port_last,
    )


def _tell(log: Log, offer: NodeOffer, now_s: float) -> None:
    log.info(
        "offering",
        node=offer.node_id,
        region=offer.region,
        gpus=f"{offer.gpus} × {offer.gpu.name}",
        sustained_gflops=round(offer.gpu.sustained_flops / 1e9, 2),
        measured_s_ago=round(now_s - offer.gpu.measured_at_s),
        address=offer.address,
    )


def _measurement(
    node: NodeSettings, found: NodeHardware, probe: Probe, seconds: float, now_s: float, busy: bool
) -> Measurement:
    target = ProbeTarget(found.gpu_type, found.devices.uuids[0] if found.devices.uuids else None)
    if node.options.sustained_flops is not None:
        return Measurement(
            device_key=target.device_key, sustained_flops=node.options.sustained_flops, measured_at_s=now_s
        )
    return probe.sustained(target, seconds, now_s, busy)


def default_work_dir(environment: Mapping[str, str]) -> Path:
    """Where an agent keeps its things if it is not told: in BACE_HOME, else in the user's data folder."""
    home = environment.get("BACE_HOME")
    if home:
        return Path(home).expanduser() / "agent"
    base = environment.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return Path(base) / "bacepipe" / "agent"
