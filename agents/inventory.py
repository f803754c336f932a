"""What a node has: GPUs by NVML, or CPU slots where the operator says so; and where it can be reached.

Everything measured or read here can be overridden by an option. A GPU's name is NVML's, in the letters of an
identifier: "NVIDIA A100-SXM4-80GB" is `a100-sxm4-80gb`.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import httpx
import psutil

from agents.environment import Devices
from agents.errors import SettingsError
from agents.settings import CPU_SLOT, NodeSettings

CPU_SLOT_POWER_W = 10.0
CPU_SLOT_IDLE_W = 1.5
"""A core of a server under load, and its share while idle: nothing on the machine tells, so override them."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as NVML tells of it. `idle_w` is what it drew when it was looked at."""

    uuid: str
    name: str
    memory_bytes: float
    power_w: float
    idle_w: float


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """What a node offers, but for the speed of its devices."""

    gpu_type: str
    memory_bytes: float
    power_w: float
    idle_w: float
    devices: Devices
    address: str


def read_gpus(nvml: ModuleType | None = None) -> tuple[Gpu, ...]:
    """All GPUs of the machine in NVML's order; none where there is no driver or no NVML binding."""
    if nvml is None:
        try:
            import pynvml
        except ImportError:
            return ()
        nvml = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()
    try:
        return tuple(
            _read_gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
            for index in range(nvml.nvmlDeviceGetCount())
        )
    finally:
        nvml.nvmlShutdown()


def visible_gpus(gpus: Sequence[Gpu], visible: str | None) -> tuple[Gpu, ...]:
    """Those that CUDA_VISIBLE_DEVICES of the agent's own environment leaves to it."""
    if visible is None:
        return tuple(gpus)
    named = [name.strip() for name in visible.split(",") if name.strip()]
    return tuple(
        gpu
        for name in named
        for index, gpu in enumerate(gpus)
        if (name.isdigit() and int(name) == index) or (not name.isdigit() and gpu.uuid.startswith(name))
    )


def inspect(node: NodeSettings, gpus: Sequence[Gpu], url: str) -> NodeHardware:
    """What this node offers; SettingsError where there is nothing, or a mixture, to offer."""
    options = node.options
    address = options.address or own_address(url)
    interface = options.interface or interface_of(address)
    if options.cpu_slots is not None:
        memory_bytes = node.memory_bytes or psutil.virtual_memory().total / options.cpu_slots
        return NodeHardware(
            gpu_type=options.gpu_type or CPU_SLOT,
            memory_bytes=memory_bytes,
            power_w=CPU_SLOT_POWER_W if options.power_w is None else options.power_w,
            idle_w=_idle_w(options.idle_w, CPU_SLOT_IDLE_W, options.power_w),
            devices=Devices(slots=options.cpu_slots, interface=interface, slot_memory_bytes=memory_bytes),
            address=address,
        )
    chosen = _choose(node, gpus)
    power_w = min(gpu.power_w for gpu in chosen) if options.power_w is None else options.power_w
    return NodeHardware(
        gpu_type=options.gpu_type or chosen[0].name,
        memory_bytes=node.memory_bytes or min(gpu.memory_bytes for gpu in chosen),
        power_w=power_w,
        idle_w=_idle_w(options.idle_w, max(gpu.idle_w for gpu in chosen), power_w),
        devices=Devices(uuids=tuple(gpu.uuid for gpu in chosen), interface=interface),
        address=address,
    )


def gpu_type_name(product: str) -> str:
    """A product name as an identifier: `NVIDIA H100 80GB HBM3` is `h100-80gb-hbm3`."""
    words = re.sub(r"[^a-z0-9._-]+", "-", product.lower().removeprefix("nvidia").strip())
    return words.strip("-._")[:63] or "gpu"


def own_address(url: str) -> str:
    """The address of this machine on the way to the server: the one that others reach it at, most likely."""
    host = httpx.URL(url).host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))  # of a datagram socket: chooses the route, sends nothing
        except OSError as error:
            raise SettingsError(
                "--address", None, f"the address of this node, for none leads to {host}"
            ) from error
        return str(probe.getsockname()[0])


def interface_of(address: str) -> str | None:
    """The network interface that has this address; None if none has (a name, or an address of a gateway)."""
    return next(
        (
            name
            for name, addresses in psutil.net_if_addrs().items()
            if any(entry.address == address for entry in addresses)
        ),
        None,
    )


def count_of_nodes(hardware: Mapping[str, NodeHardware]) -> dict[str, int]:
    """GPUs or slots of each node."""
    return {node_id: found.devices.count for node_id, found in hardware.items()}


def _choose(node: NodeSettings, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    if not gpus:
        raise SettingsError(
            "--cpu-slots",
            None,
            f"how many CPU slots node {node.node_id} offers: no NVIDIA GPU is to be found here "
            "(for GPUs: the driver, and `pip install bacepipe[agent]`)",
        )
    indices = node.options.devices if node.options.devices is not None else tuple(range(len(gpus)))
    if not indices or max(indices) >= len(gpus):
        raise SettingsError("devices", list(indices), f"indices below {len(gpus)}, the GPUs of this machine")
    chosen = tuple(gpus[index] for index in indices)
    names = sorted({gpu.name for gpu in chosen})
    if len(names) > 1 and node.options.gpu_type is None:
        raise SettingsError(
            "devices",
            list(indices),
            f"GPUs of one type a node, not {', '.join(names)}: name them by --nodes FILE",
        )
    return chosen


def _idle_w(said_w: float | None, found_w: float, power_w: float | None) -> float:
    if said_w is not None:
        return said_w
    return found_w if power_w is None else min(found_w, power_w)


def _read_gpu(nvml: ModuleType, handle: object) -> Gpu:
    name, uuid = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetUUID(handle)
    limit_w = nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
    return Gpu(
        uuid=uuid,
        name=gpu_type_name(name),
        memory_bytes=float(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        power_w=limit_w,
        idle_w=min(limit_w, nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
    )
