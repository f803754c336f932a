"""What a placement holds of the links between regions."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.placement import Placement, Transfer
from service.db.records import HeldLinkRecord


def held_links(
    placement: Placement, transfers: Iterable[Transfer], project: str, allocation_id: str
) -> list[HeldLinkRecord]:
    """A cut holds its bandwidth in both directions, activations there and gradients back; a transfer in its own."""
    held: dict[tuple[str, str], float] = {}
    granted = [(cut.src, cut.dst, cut.bandwidth_bps) for cut in placement.cuts]
    granted += [(cut.dst, cut.src, cut.bandwidth_bps) for cut in placement.cuts]
    granted += [(each.src, each.dst, each.bandwidth_bps) for each in transfers]
    for src, dst, bandwidth_bps in granted:
        held[src, dst] = held.get((src, dst), 0.0) + bandwidth_bps
    return [HeldLinkRecord(allocation_id, src, dst, project, bps) for (src, dst), bps in sorted(held.items())]
