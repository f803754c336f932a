"""Which GPUs of which nodes carry the stages of a placement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from scheduler.cluster import Node, PoolKey
from scheduler.errors import InvalidValueError
from scheduler.placement import Placement

Slot = tuple[str, int]
"""(node id, index of the GPU on it)."""


@dataclass(frozen=True, slots=True)
class StageSlots:
    """The GPUs of one stage, in the order of its ranks: data replica by data replica, tensor ranks together."""

    stage: int
    slots: tuple[Slot, ...]


class FreeSlots:
    """The free GPUs of nodes, from which placements take theirs, one after the other."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._pools: dict[PoolKey, dict[str, list[int]]] = {}
        for node in nodes:
            if node.free_gpus:
                pool = self._pools.setdefault((node.region, node.gpu_type), {})
                pool[node.node_id] = sorted(node.free_gpus)

    def take(self, placement: Placement) -> tuple[StageSlots, ...]:
        """The slots of every stage of the placement, in pipeline order; they are free no more.

        A stage stands inside one node where one has the room, because its tensor ranks talk all the time, and the
        whole stages of a segment use as few nodes as can hold them: the node that takes the most stages first, the
        last ones where they fit most tightly, so that empty nodes stay empty. A stage that no node can hold whole is
        spread over what is left, again over few nodes. Ties go by node id: the answer does not depend on the order
        of the nodes.

        Raises InvalidValueError, which names the pool, if the nodes lack room; what is free then is not to be relied
        on any more.
        """
        packed: list[StageSlots] = []
        for segment in placement.segments:
            pool = self._pools.get((segment.region, segment.gpu_type), {})
            room = sum(map(len, pool.values()))
            if room < segment.gpus:
                raise InvalidValueError(
                    f"placement: segment {segment.region}/{segment.gpu_type}",
                    segment.gpus,
                    f"at most the {room} free GPUs of the pool's nodes",
                )
            for slots in _stages(pool, segment.stages, segment.gpus_per_stage):
                packed.append(StageSlots(len(packed), slots))
        return tuple(packed)


def _stages(pool: dict[str, list[int]], stages: int, gpus: int) -> Iterator[tuple[Slot, ...]]:
    """The slots of each stage of a segment, taken out of `pool`."""
    left = stages
    while left:
        room = {node_id: len(free) // gpus for node_id, free in pool.items() if len(free) >= gpus}
        if not room:
            break
        node_id = _tightest(room, left)
        for _ in range(min(left, room[node_id])):
            yield tuple(_take(pool, node_id, gpus))
            left -= 1
    for _ in range(left):
        slots: list[Slot] = []
        while len(slots) < gpus:
            missing = gpus - len(slots)
            node_id = _tightest({name: len(free) for name, free in pool.items() if free}, missing)
            slots += _take(pool, node_id, missing)
        yield tuple(slots)


def _tightest(room: dict[str, int], wanted: int) -> str:
    """The node with the least room of those that hold all that is wanted; if none does, the one with the most."""
    enough = [(size, node_id) for node_id, size in room.items() if size >= wanted]
    return min(enough)[1] if enough else min((-size, node_id) for node_id, size in room.items())[1]


def _take(pool: dict[str, list[int]], node_id: str, gpus: int) -> list[Slot]:
    """Up to so many GPUs of a node, lowest index first. One that has none left is left out from then on."""
    here, rest = pool[node_id][:gpus], pool[node_id][gpus:]
    if rest:
        pool[node_id] = rest
    else:
        del pool[node_id]
    return [(node_id, index) for index in here]
