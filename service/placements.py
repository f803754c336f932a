"""A placement, and what travels to it, as JSON, as they stand in `allocations` and `promises`, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scheduler.job import Schedule
from scheduler.placement import Cut, Placement, Segment, Transfer


def to_document(placement: Placement) -> dict[str, Any]:
    """Segments and cuts in pipeline order; bandwidth in bit/s, latency in seconds (one way)."""
    return {
        "segments": [
            {
                "region": segment.region,
                "gpu_type": segment.gpu_type,
                "stages": segment.stages,
                "gpus_per_stage": segment.gpus_per_stage,
            }
            for segment in placement.segments
        ],
        "cuts": [
            {"src": cut.src, "dst": cut.dst, "bandwidth_bps": cut.bandwidth_bps, "latency_s": cut.latency_s}
            for cut in placement.cuts
        ],
        "schedule": placement.schedule.value,
        "window": list(placement.window),
        "lag": list(placement.lag),
        "order": list(placement.order),
    }


def from_document(document: dict[str, Any]) -> Placement:
    """The inverse. Raises what `Placement` raises for one that does not hold together."""
    return Placement(
        segments=tuple(Segment(**segment) for segment in document["segments"]),
        cuts=tuple(Cut(**cut) for cut in document["cuts"]),
        schedule=Schedule(document["schedule"]),
        window=tuple(document["window"]),
        lag=tuple(document.get("lag", ())),  # placements of before backwards could be split have none
        order=tuple(document.get("order", ())),  # nor those of before there were orders
    )


def transfers_to_documents(transfers: Iterable[Transfer]) -> list[dict[str, Any]]:
    """Bytes and bit/s of each."""
    return [
        {
            "src": each.src,
            "dst": each.dst,
            "sent_bytes": each.sent_bytes,
            "bandwidth_bps": each.bandwidth_bps,
        }
        for each in transfers
    ]


def transfers_from_documents(documents: Iterable[dict[str, Any]]) -> tuple[Transfer, ...]:
    """The inverse. Raises what `Transfer` raises for one that does not hold together."""
    return tuple(Transfer(**document) for document in documents)
