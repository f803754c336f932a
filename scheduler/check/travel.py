"""Whether the state of a job travels from where it lies to where it is needed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from scheduler.check.rules import RELATIVE_TOLERANCE, Begun, Rule, Violation
from scheduler.cluster import Cluster
from scheduler.job import JobSpec
from scheduler.parameters import parameter_count
from scheduler.placement import Placement
from scheduler.profile import BYTES_PER_PARAMETER, split_layers
from scheduler.snapshot import StateSpan


def transfers(cluster: Cluster, start: Begun) -> Iterator[Violation]:
    """What must travel does, once, over links that exist."""
    needed = _travelling(start.spec, start.state, start.placement)
    sent = Counter((each.src, each.dst) for each in start.decision.transfers)
    for src, dst in sorted(needed.keys() | sent.keys()):
        if sent[src, dst] != ((src, dst) in needed):
            yield Violation(
                start.job_id,
                Rule.TRANSFERS,
                f"{src} > {dst}: {sent[src, dst]} transfers, {needed.get((src, dst), 0.0):g} bytes must travel",
            )
    for each in start.decision.transfers:
        name, volume = f"{each.src} > {each.dst}", needed.get((each.src, each.dst), each.sent_bytes)
        if not math.isclose(each.sent_bytes, volume, rel_tol=RELATIVE_TOLERANCE):
            yield Violation(
                start.job_id, Rule.TRANSFERS, f"{name}: {each.sent_bytes:.17g} bytes instead of {volume:.17g}"
            )
        if (each.src, each.dst) not in cluster.links:
            yield Violation(start.job_id, Rule.TRANSFERS, f"{name}: there is no link")
        if not math.isfinite(each.bandwidth_bps):
            yield Violation(start.job_id, Rule.TRANSFERS, f"{name}: its bandwidth is not finite")


def _travelling(
    spec: JobSpec, state: tuple[StateSpan, ...], placement: Placement
) -> dict[tuple[str, str], float]:
    """Bytes that have to cross from region to region, layer by layer."""
    if not state or placement.stages * placement.schedule.parts > spec.model.layers:
        return {}
    lies = [span.region for span in state for _ in range(span.layers)]
    stands = [span.region for span in layers_standing(spec, placement) for _ in range(span.layers)]
    crossing = Counter((src, dst) for src, dst in zip(lies, stands, strict=True) if src != dst)
    whole = BYTES_PER_PARAMETER * parameter_count(spec.model)
    total = spec.profile.stage_memory_bytes if spec.profile else float(whole)
    return {pair: total * layers / spec.model.layers for pair, layers in crossing.items()}


def layers_standing(spec: JobSpec, placement: Placement) -> tuple[StateSpan, ...]:
    """The layers that stand in each region, in their order."""
    regions = [segment.region for segment in placement.segments for _ in range(segment.stages)]
    if placement.schedule.parts > 1:
        regions += regions if placement.schedule.loops else regions[::-1]
    parts = zip(regions, split_layers(spec.model, len(regions)), strict=True)
    return tuple(StateSpan(region, layers) for region, layers in parts)
