"""GPUs by use: counted from nodes and what live allocations hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from service.db.records import NodeRecord
from service.db.repositories import allocations
from service.db.session import Session
from service.lifecycle import NodeState


@dataclass(frozen=True, slots=True)
class GpuCount:
    """`total` = used + free + unavailable: neither held, nor on a node that takes anything new."""

    total: int
    used: int
    free: int

    @property
    def unavailable(self) -> int:
        return self.total - self.used - self.free


def used_by_node(session: Session) -> Counter[str]:
    """Held GPUs of each node."""
    return Counter(gpu.node_id for gpu in allocations.held_gpus(session))


def count_gpus(nodes: Iterable[NodeRecord], used: Counter[str]) -> GpuCount:
    """Of these nodes together."""
    nodes = list(nodes)
    return GpuCount(
        total=sum(node.gpus for node in nodes),
        used=sum(used[node.node_id] for node in nodes),
        free=sum(node.gpus - used[node.node_id] for node in nodes if node.state == NodeState.READY),
    )
