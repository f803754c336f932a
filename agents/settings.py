"""What an agent is told: by options, environment, or a file of nodes. Read once, checked whole, then only values.

A file of nodes (YAML) holds `nodes:`, a list; each node may name anything that an option says for all of them:

    nodes:
      - {name: a100-1, region: eu-west-1, devices: [0, 1, 2, 3], address: 10.0.0.5, ports: 29500-29549}
      - {name: a100-2, region: eu-west-1, devices: [4, 5, 6, 7], address: 10.0.0.5, ports: 29550-29599}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.errors import SettingsError
from agents.protocol import Identifier

CPU_SLOT = "cpu-slot"
DEFAULT_PORTS = "29500-29599"
_PORTS = re.compile(r"(\d{1,5})-(\d{1,5})")
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?")
_UNITS = {
    "B": 1,
    "kB": 1e3,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}


class NodeOptions(BaseModel):
    """What can be said of a node; None where nothing was said."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Identifier | None = None
    region: Identifier | None = None
    gpu_type: Identifier | None = None
    cpu_slots: Annotated[int, Field(ge=1, le=1024)] | None = None
    devices: tuple[Annotated[int, Field(ge=0, le=1023)], ...] | None = None
    """NVML indices of the GPUs that belong to the node; all, where nothing is said."""
    address: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    interface: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    ports: str | None = None
    power_w: Annotated[float, Field(ge=0, le=1e5)] | None = None
    idle_w: Annotated[float, Field(ge=0, le=1e5)] | None = None
    memory: str | None = None
    sustained_flops: Annotated[float, Field(ge=1e3, le=1e18)] | None = None


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """One node, complete but for what only its hardware can tell."""

    node_id: str
    region: str
    options: NodeOptions
    port_first: int
    port_last: int
    memory_bytes: float | None


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Everything an agent is told."""

    url: str
    token: str
    work_dir: Path
    secrets_dir: Path
    nodes: tuple[NodeSettings, ...]
    probe_seconds: float
    stop_workers_on_exit: bool
    worker_env: tuple[str, ...] = ()
    """Variables of the agent's environment that its workers get."""
    ca_file: Path | None = None
    """An authority to believe that the server is the server, beside those of this machine."""


def nodes_from_file(path: Path) -> list[NodeOptions]:
    """The nodes of a file; SettingsError names the entry and the field."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError("--nodes", str(path), f"a readable YAML file ({error})") from error
    entries = document.get("nodes") if isinstance(document, dict) and set(document) == {"nodes"} else None
    if not isinstance(entries, list) or not entries:
        raise SettingsError("--nodes", str(path), "one key `nodes` with a list of nodes")
    return [node_options(entry, f"--nodes {path}: nodes[{number}]") for number, entry in enumerate(entries)]


def node_options(values: Any, entry: str | None = None) -> NodeOptions:
    """Values as options of a node; SettingsError names the first field that cannot be meant.

    `entry` says where in a file they stand; without it they are options of the command line.
    """
    try:
        return NodeOptions.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        option = f"--{field}".replace("_", "-").replace("--name", "--node")
        raise SettingsError(
            option if entry is None else f"{entry}.{field}",
            first["input"],
            first["msg"].removeprefix("Value error, ").removeprefix("Input should be "),
        ) from error


def complete_nodes(general: NodeOptions, named: Sequence[NodeOptions]) -> tuple[NodeSettings, ...]:
    """Each node with what was said for all of them filled in, and the whole checked for contradictions.

    Nodes that name no ports of their own share the general range out among them, in equal parts.
    """
    said = general.model_dump(exclude_none=True)
    nodes = [NodeOptions.model_validate({**said, **node.model_dump(exclude_none=True)}) for node in named]
    first, last = parse_ports(general.ports or DEFAULT_PORTS)
    own = [node.ports for node in named]
    sharing = own.count(None)
    size = (last - first + 1) // sharing if sharing else 0
    if sharing and not size:
        raise SettingsError(
            "--ports", f"{first}-{last}", f"at least one port for each of the {sharing} nodes"
        )
    settings = []
    shared = 0
    for node, ports in zip(nodes, own, strict=True):
        if ports is None:
            ports = f"{first + shared * size}-{first + (shared + 1) * size - 1}"
            shared += 1
        settings.append(_node(node, *parse_ports(ports)))
    _check_apart(settings)
    return tuple(settings)


def parse_ports(text: str) -> tuple[int, int]:
    """`29500-29599` as first and last."""
    match = _PORTS.fullmatch(text)
    first, last = (int(match.group(1)), int(match.group(2))) if match else (0, 0)
    if not 1024 <= first <= last <= 65535:
        raise SettingsError("--ports", text, "FIRST-LAST within 1024-65535, such as 29500-29599")
    return first, last


def parse_memory(text: str) -> float:
    """`16GB`, `8GiB` or a number of bytes."""
    match = _BYTES.fullmatch(text.strip())
    if match is None or float(match.group(1)) == 0:
        raise SettingsError("--memory", text, "a size such as 4GB or 8GiB")
    return float(match.group(1)) * _UNITS[match.group(2) or "B"]


def _node(node: NodeOptions, port_first: int, port_last: int) -> NodeSettings:
    if node.name is None:
        raise SettingsError("--node", None, "a name for every node")
    if node.region is None:
        raise SettingsError("--region", None, f"the region in which node {node.name} stands")
    if node.cpu_slots is not None and node.devices is not None:
        raise SettingsError(
            "--cpu-slots", node.cpu_slots, f"either cpu_slots or devices for node {node.name}"
        )
    if node.power_w is not None and node.idle_w is not None and node.idle_w > node.power_w:
        raise SettingsError("--idle-w", node.idle_w, f"at most the {node.power_w} W of --power-w")
    memory_bytes = None if node.memory is None else parse_memory(node.memory)
    return NodeSettings(node.name, node.region, node, port_first, port_last, memory_bytes)


def _check_apart(nodes: Sequence[NodeSettings]) -> None:
    """No two nodes may be the same, hold the same GPU, or hand out the same port of the same address."""
    for one, other in combinations(nodes, 2):
        if one.node_id == other.node_id:
            raise SettingsError("--node", one.node_id, "every node once")
        same_address = one.options.address == other.options.address
        if same_address and one.port_first <= other.port_last and other.port_first <= one.port_last:
            raise SettingsError(
                "--ports",
                f"{other.port_first}-{other.port_last}",
                f"a range apart from that of node {one.node_id}, {one.port_first}-{one.port_last}",
            )
        if one.options.cpu_slots is None and other.options.cpu_slots is None:
            mine, theirs = one.options.devices, other.options.devices
            if mine is None or theirs is None or set(mine) & set(theirs):
                raise SettingsError(
                    "devices",
                    theirs,
                    f"GPUs of node {other.node_id} apart from those of {one.node_id} (--nodes FILE)",
                )
