"""What it takes to stop a job and to start it again elsewhere or with other stages: time, and bytes that travel.

A job stops by writing its state, every stage its own layers, and goes on when the state lies where the stages stand
now: what changes region travels over the links, then every stage reads its layers. Optimizer state, master weights and
weights are `BYTES_PER_PARAMETER` a parameter, as they are in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from scheduler.cluster import Cluster
from scheduler.job import JobSpec
from scheduler.network import Residual
from scheduler.parameters import parameter_count
from scheduler.pipeline.plan.laid_out import layout_of
from scheduler.placement import Placement, Transfer
from scheduler.profile import BYTES_PER_PARAMETER, layers_before, split_layers
from scheduler.snapshot import RunningJob, StateSpan

LEAST_PART: Final = 50
"""State travels only where at least one part in so many of a link is free: it would hardly ever arrive otherwise."""


def state_bytes(spec: JobSpec) -> float:
    """The whole checkpoint of a job, once, however many data replicas it has."""
    if spec.profile is not None:
        return spec.profile.stage_memory_bytes
    return float(BYTES_PER_PARAMETER * parameter_count(spec.model))


def storage_s(spec: JobSpec, cluster: Cluster, placement: Placement) -> float:
    """How long the stages take to write their state, or to read it: the largest stage sets the time."""
    largest = max(split_layers(spec.model, placement.stages)) / spec.model.layers
    gpus = placement.segments[0].gpus_per_stage
    return state_bytes(spec) * largest * 8 / (cluster.restart.storage_bps_per_gpu * gpus)


def stop_s(spec: JobSpec, cluster: Cluster, placement: Placement) -> float:
    """From the decision to stop a job that trains until its GPUs are free: the state is written."""
    return storage_s(spec, cluster, placement)


def is_restarting(job: RunningJob, now_s: float) -> bool:
    """Whether a job was started again and has not come to its first step: stopped now, it has nothing to write."""
    return job.ready_s is not None and now_s < job.ready_s


def time_to_stop_s(job: RunningJob, cluster: Cluster, now_s: float) -> float:
    """From a decision to stop a running job now until its GPUs are free."""
    if is_restarting(job, now_s):
        return 0.0
    return stop_s(job.spec, cluster, job.allocation.placement)


def state_after_stop(job: RunningJob, now_s: float) -> tuple[StateSpan, ...]:
    """Where the state of a running job lies if it is stopped now: where it trains, or still where it came from."""
    return job.state if is_restarting(job, now_s) else state_of(job.spec, job.allocation.placement)


def restart_s(
    spec: JobSpec, cluster: Cluster, placement: Placement, transfers: Sequence[Transfer] = ()
) -> float:
    """From the moment a job that has run before gets its GPUs until its first step.

    Processes start, then the state travels (all transfers at once), then it is read; initial weights, where it has no
    checkpoint yet, as well.
    """
    return restarting_s(cluster, storage_s(spec, cluster, placement), transfers)


def restarting_s(cluster: Cluster, reading_s: float, transfers: Sequence[Transfer]) -> float:
    """As `restart_s`, where the stages read their state in so long."""
    travel_s = max((transfer.duration_s for transfer in transfers), default=0.0)
    return cluster.restart.fixed_s + travel_s + reading_s


def state_of(spec: JobSpec, placement: Placement) -> tuple[StateSpan, ...]:
    """Where the state of a job lies that stopped on a placement, in layer order."""
    return _folded_state(spec, placement) if placement.schedule.parts > 1 else _state_in_line(spec, placement)


def _folded_state(spec: JobSpec, placement: Placement) -> tuple[StateSpan, ...]:
    """Of a pipeline that passes every stage twice, in equal parts."""
    regions = [segment.region for segment in placement.segments for _ in range(segment.stages)]
    (chain,) = layout_of(placement.schedule, placement.stages).chains
    layers = spec.model.layers // len(chain)
    return tuple(
        StateSpan(region, layers * len(list(parts)))
        for region, parts in groupby(regions[rank] for rank in chain)
    )


def _state_in_line(spec: JobSpec, placement: Placement) -> tuple[StateSpan, ...]:
    spans: list[StateSpan] = []
    stage = before = 0
    for segment in placement.segments:
        stage += segment.stages
        until = layers_before(spec.model, placement.stages, stage)
        held = until - before
        if spans and spans[-1].region == segment.region:
            held += spans.pop().layers
        spans.append(StateSpan(segment.region, held))
        before = until
    return tuple(spans)


def travelling_bytes(
    spec: JobSpec, state: Sequence[StateSpan], placement: Placement
) -> dict[tuple[str, str], float]:
    """Bytes of state that have to go from one region to another before the job can restart there."""
    return bytes_between(spec, state, state_of(spec, placement)) if state else {}


def bytes_between(
    spec: JobSpec, before: Sequence[StateSpan], after: Sequence[StateSpan]
) -> dict[tuple[str, str], float]:
    """Bytes of state that have to go from one region to another where it is to lie otherwise than before."""
    per_layer = state_bytes(spec) / spec.model.layers
    sent: dict[tuple[str, str], float] = {}
    for src, dst, layers in _overlaps(before, after):
        if src != dst:
            sent[src, dst] = sent.get((src, dst), 0.0) + layers * per_layer
    return sent


def granted_transfers(
    spec: JobSpec, state: Sequence[StateSpan], placement: Placement, residual: Residual
) -> tuple[Transfer, ...] | None:
    """The transfers that a restart needs, with what is free on their links beside the placement's own cuts.

    `residual` is without the placement. Transfers that share an up- or downlink get an equal part of it. None if the
    state cannot reach one of the regions now.
    """
    return granted_for(travelling_bytes(spec, state, placement), placement, residual)


def granted_for(
    sent: Mapping[tuple[str, str], float], placement: Placement, residual: Residual
) -> tuple[Transfer, ...] | None:
    """As `granted_transfers`, for so many bytes from one region to another."""
    if not sent:
        return ()
    free = residual.clone()
    free.take(placement)
    leaving, entering = zip(*sent, strict=True)
    transfers = []
    for (src, dst), volume in sorted(sent.items()):
        granted = min(
            free.own_link_bps((src, dst)),
            free.uplink_bps(src) / leaving.count(src),
            free.downlink_bps(dst) / entering.count(dst),
        )
        if math.isfinite(granted):
            granted = math.floor(granted)
        if granted <= 0 or granted < residual.topology.link_bps.get((src, dst), 0) / LEAST_PART:
            return None
        transfers.append(Transfer(src, dst, volume, granted))
    return tuple(transfers)


def _overlaps(before: Sequence[StateSpan], after: Sequence[StateSpan]) -> Iterator[tuple[str, str, int]]:
    """(from, to, layers) of two partitions of the same layers, piece by piece."""
    there = iter(after)
    now = next(there)
    room = now.layers
    for span in before:
        left = span.layers
        while left:
            if not room:
                now = next(there)
                room = now.layers
            step = min(left, room)
            yield span.region, now.region, step
            left -= step
            room -= step
