"""A placement as JSON, as it stands in `allocations.placement`, and back."""

from __future__ import annotations

from typing import Any

from scheduler.job import Schedule
from scheduler.placement import Cut, Placement, Segment


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
    }


def from_document(document: dict[str, Any]) -> Placement:
    """The inverse. Raises what `Placement` raises for one that does not hold together."""
    return Placement(
        segments=tuple(Segment(**segment) for segment in document["segments"]),
        cuts=tuple(Cut(**cut) for cut in document["cuts"]),
        schedule=Schedule(document["schedule"]),
        window=tuple(document["window"]),
    )
