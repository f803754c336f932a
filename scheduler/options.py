"""What a job could use: stage counts worth having, what a cut needs to keep up, K*, and the regions it may enter.

All of it depends on the job and the cluster and nothing else; it is derived once and remembered (bounded).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from scheduler.cluster import GpuType, PoolKey
from scheduler.datasets import beginnings
from scheduler.job import JobSpec
from scheduler.network import Bandwidth, Topology
from scheduler.profile import (
    Workload,
    boundary_bytes,
    boundary_bytes_of,
    can_have,
    in_flight_room,
    k_min,
    least_window,
    pace_s,
    stage_profiles,
)
from scheduler.snapshot import WaitingJob

BITS_PER_BYTE: Final = 8
_REMEMBERED_DEMANDS: Final = 8192
_T = TypeVar("_T")
_SAME_PACE: Final = 1e-9
"""Relative difference below which two paces are the same: sums of the same layers in another order."""


@dataclass(frozen=True, slots=True)
class StageCounts:
    """The numbers of stages worth having on GPUs of the given types, ascending, with what each means.

    Layers are whole, so several K have the same slowest stage: only the smallest K of each pace is here, and only
    where every stage fits in the memory of at least one of the types. The first is the least the job can run with
    (K_min, or its own lower bound). With several types the slowest sets `pace_s`, and `need_bps` is what a cut
    needs if the fastest does: whatever mix is chosen, the cut keeps up.
    """

    gpu_types: tuple[str, ...]
    counts: tuple[int, ...]
    pace_s: tuple[float, ...]
    """Forward + backward of the slowest stage for one micro-batch."""
    need_bps: tuple[int, ...]
    """A / pace in whole bits per second, rounded up: a cut with that much never sets the pace (A/b ≤ pace)."""

    @property
    def floor(self) -> int:
        """The least number of stages."""
        return self.counts[0]

    def index(self, stages: int, bandwidth_bps: Bandwidth = math.inf) -> int:
        """Position in `counts` of the best count within so many stages and that bandwidth; −1 if none is."""
        return min(bisect_right(self.counts, stages), bisect_right(self.need_bps, bandwidth_bps)) - 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to serve a demand: on the pools of these GPU types, with at most `counts[cap]` stages."""

    stage_counts: StageCounts
    pools: tuple[PoolKey, ...]
    """Every pool of these types in the regions that the job may use, by region and type."""
    cap: int
    as_named: bool = False
    """Whether it is the stages that the job names that bound `cap`, not K*."""

    @property
    def most(self) -> int:
        """What no policy goes beyond: K*, or the stages that the job names."""
        return self.stage_counts.counts[self.cap]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Demand:
    """What a job asks of a cluster. Jobs that ask for the same share one object: identity tells demands apart."""

    spec: JobSpec
    """One of the jobs with this demand; only what decides its iteration may be read from it."""
    gpus_per_stage: int
    boundary_bits: float
    """A: bits across a stage boundary per micro-batch and direction."""
    regions: tuple[str, ...]
    """Those the job may use, by name."""
    begins: Mapping[str, float]
    """Those of them in which its chain may begin, with what it costs to bring its data sets there, USD."""
    filtered: tuple[tuple[str, str], ...]
    """(region, the rule that keeps it out) of all others."""
    max_regions: int
    candidates: tuple[Candidate, ...]
    """Each GPU type alone, then all together; empty where even the whole cluster is too small."""
    floor_by_type: tuple[tuple[str, int | None], ...]
    """K_min (or the job's own lower bound) on each GPU type of the cluster; None where no number of stages fits."""
    solo_iteration_s: float
    """Naive (M + K* − 1) × pace: an iteration of the job alone, at its best. 0 without candidates."""
    rate_bps: float
    """r = A·K/t at K*: the bandwidth at which a cut just keeps up. 0 without candidates."""


@dataclass(frozen=True, slots=True)
class _Memo:
    """What is known of the demands on one topology. It must not hold the topology: it lives as long as that does."""

    shared: dict[object, Demand] = field(default_factory=dict)
    by_spec: dict[object, tuple[JobSpec, Demand]] = field(default_factory=dict)


_MEMOS: WeakKeyDictionary[Topology, _Memo] = WeakKeyDictionary()


class Demands:
    """The demands of jobs on one cluster, each derived once and remembered as long as the cluster is."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._memo = _MEMOS.setdefault(topology, _Memo())

    def of(self, job: WaitingJob, *, growth: float = 1.0) -> Demand:
        """The demand of a waiting job. `growth` is how far its cap of K goes from the stages that the job names (0) to
        K* (1)."""
        key = (id(job.spec), job.avoid_regions, job.require_regions, job.stages, growth)
        memo = self._memo
        known = memo.by_spec.get(key)
        if known is not None:
            return known[1]
        spec = asked = job.spec
        if job.stages is not None:
            kept = replace(spec.parallelism, stages_min=job.stages, stages_max=job.stages)
            spec = replace(spec, parallelism=kept)
            job = replace(job, spec=spec)
        shared = (Workload.of(spec), spec.parallelism, spec.placement, spec.data, *key[1:])
        demand = memo.shared.get(shared)
        if demand is None:
            _make_room(memo.shared)
            demand = memo.shared[shared] = _demand(job, self._topology, growth)
        _make_room(memo.by_spec)
        memo.by_spec[key] = (asked, demand)  # holds the spec, so that its id stays its own
        return demand


def why_filtered(job: WaitingJob, region: str) -> str | None:
    """The rule that keeps a job out of a region, in words; None if it may enter."""
    rule = job.spec.placement
    if rule.regions and not any(fnmatchcase(region, glob) for glob in rule.regions):
        return f"placement.regions allows {', '.join(rule.regions)} only"
    for glob in rule.exclude:
        if fnmatchcase(region, glob):
            return f"placement.exclude names {glob}"
    if job.require_regions and region not in job.require_regions:
        return "its checkpoint cannot be reached from there"
    if region in job.avoid_regions:
        return "cools down after a failure there"
    return None


def _why_no_beginning(spec: JobSpec) -> str:
    home = spec.placement.home
    return (
        "no link brings its data there"
        if home is None
        else f"placement.home is {home}, and it uses one region"
    )


def stage_counts(spec: JobSpec, gpus: tuple[GpuType, ...]) -> StageCounts | None:
    """The stage counts worth having on these GPU types; None if nothing within the job's bounds fits."""
    parallelism = spec.parallelism
    bounds = (
        parallelism.stages_min or 1,
        min(parallelism.stages_max or spec.model.layers, spec.model.layers),
    )
    return _stage_counts(_Shape(Workload.of(spec), spec), gpus, bounds)


class _Shape:
    """A spec that equals every other with the same workload: so that jobs share what is derived from it."""

    __slots__ = ("spec", "work")

    def __init__(self, work: Workload, spec: JobSpec) -> None:
        self.work, self.spec = work, spec

    def __hash__(self) -> int:
        return hash(self.work)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shape) and self.work == other.work


@lru_cache(maxsize=2048)
def _stage_counts(shape: _Shape, gpus: tuple[GpuType, ...], bounds: tuple[int, int]) -> StageCounts | None:
    floors = [least for least in (k_min(shape.spec, gpu) for gpu in gpus) if least is not None]
    if not floors:
        return None
    counts: list[int] = []
    slowest: list[float] = []
    needs: list[int] = []
    bits = boundary_bytes_of(shape.work) * BITS_PER_BYTE
    for stages in range(max(bounds[0], min(floors)), bounds[1] + 1):
        if not can_have(shape.work, stages):
            continue
        paces = [pace_s(shape.spec, gpu, stages) for gpu in gpus]
        if slowest and max(paces) >= slowest[-1] * (1 - _SAME_PACE):
            continue
        if not all(
            any(stage) for stage in zip(*(fitting_stages(shape.spec, g, stages) for g in gpus), strict=True)
        ):
            continue
        counts.append(stages)
        slowest.append(max(paces))
        needs.append(max(math.ceil(bits / min(paces)), needs[-1] if needs else 1))
    if not counts:
        return None
    return StageCounts(tuple(gpu.name for gpu in gpus), tuple(counts), tuple(slowest), tuple(needs))


def fitting_stages(spec: JobSpec, gpu: GpuType, stages: int) -> tuple[bool, ...]:
    """For each of `stages` stages whether it fits in the memory of that GPU type with the least window."""
    profiles = stage_profiles(spec, (gpu,) * stages)
    windows = least_window(Workload.of(spec), stages)
    return tuple(in_flight_room(p, gpu) >= need for p, need in zip(profiles, windows, strict=True))


def k_star(
    counts: StageCounts, pools: Iterable[PoolKey], gpus_per_stage: int, topology: Topology, max_regions: int
) -> int | None:
    """Position in `counts` of K* = argmin_k (M + k − 1)·max(t/k, A/b); None if the cluster is too small for any.

    The naive time falls with k until A/b binds, so K* is the smallest K of its pace within: the layers, ⌊t·b/A⌋
    for the best link b between the regions of `pools`, the group slots of as many regions as the job may use, and
    its own upper bound; at least the least it can run with. Without a usable link no cut can bind.
    """
    slots: dict[str, int] = {}
    for key in pools:
        slots[key[0]] = slots.get(key[0], 0) + topology.cluster.pools[key].gpus // gpus_per_stage
    within = sum(sorted(slots.values(), reverse=True)[:max_regions])
    if within < counts.floor:
        return None
    best = max(_pair_capacities(topology, slots), default=math.inf) if max_regions > 1 else math.inf
    return max(0, counts.index(within, best))


def grown_cap(counts: StageCounts, cap: int, named: int | None, growth: float) -> int:
    """Position in `counts` so far from the stages that a job names (0) to those at `cap` (1).

    A job that names none has `cap`.
    """
    if named is None or growth >= 1.0:
        return cap
    most = named + growth * (counts.counts[cap] - named)
    return min(cap, max(0, counts.index(math.floor(most))))


def _pair_capacities(topology: Topology, regions: Iterable[str]) -> Iterator[Bandwidth]:
    """What a cut could have at most, for every pair of the regions that is linked in both directions."""
    names = set(regions)
    access = {name: min(topology.uplink_bps[name], topology.downlink_bps[name]) for name in names}
    for a in names:
        for b in topology.neighbours[a]:
            if a < b and b in names:
                yield min(topology.link_bps[a, b], topology.link_bps[b, a], access[a], access[b])


def _demand(job: WaitingJob, topology: Topology, growth: float) -> Demand:
    spec, cluster = job.spec, topology.cluster
    verdicts = [(region, why_filtered(job, region)) for region in topology.regions]
    begins = beginnings(spec, cluster.links, {region for region, why in verdicts if why is None})
    if spec.placement.max_regions == 1:  # where it cannot begin it cannot stand at all
        verdicts = [
            (region, _why_no_beginning(spec) if why is None and region not in begins else why)
            for region, why in verdicts
        ]
    regions = tuple(region for region, why in verdicts if why is None)
    max_regions = min(len(regions), spec.placement.max_regions or len(regions))
    single = {name: stage_counts(spec, (cluster.gpu_types[name],)) for name in sorted(cluster.gpu_types)}
    candidates = tuple(_candidates(spec, topology, regions, max_regions, growth))
    micro_batches = spec.training.micro_batches
    solo_s, rate_bps = min(
        (
            (
                (micro_batches + each.most - 1) * each.stage_counts.pace_s[each.cap],
                each.stage_counts.need_bps[each.cap],
            )
            for each in candidates
        ),
        default=(0.0, 0),
    )
    return Demand(
        spec=spec,
        gpus_per_stage=spec.parallelism.gpus_per_stage,
        boundary_bits=boundary_bytes(spec) * BITS_PER_BYTE,
        regions=regions,
        begins=begins,
        filtered=tuple((region, why) for region, why in verdicts if why is not None),
        max_regions=max_regions,
        candidates=candidates,
        floor_by_type=tuple((name, counts.floor if counts else None) for name, counts in single.items()),
        solo_iteration_s=solo_s,
        rate_bps=rate_bps,
    )


def _candidates(
    spec: JobSpec, topology: Topology, regions: tuple[str, ...], max_regions: int, growth: float
) -> Iterator[Candidate]:
    cluster, size = topology.cluster, spec.parallelism.gpus_per_stage
    pools = [key for region in regions for key in topology.pools_by_region[region]]
    roomy = [key for key in pools if cluster.pools[key].gpus >= size]
    types = [cluster.gpu_types[name] for name in sorted({gpu_type for _, gpu_type in roomy})]
    useful = [gpu.name for gpu in types if _holds_a_stage(spec, gpu)]
    groups = [(name,) for name in useful] + ([tuple(useful)] if len(useful) > 1 else [])
    for group in groups:
        counts = stage_counts(spec, tuple(cluster.gpu_types[name] for name in group))
        if counts is None:
            continue
        usable = tuple(key for key in roomy if key[1] in group)
        cap = k_star(counts, usable, size, topology, max_regions)
        if cap is None:
            continue
        grown = grown_cap(counts, cap, spec.parallelism.named_stages, growth)
        yield Candidate(counts, usable, grown, as_named=grown < cap)


def _holds_a_stage(spec: JobSpec, gpu: GpuType) -> bool:
    """Whether a stage of the finest cut fits there: on a line the last, with least in flight, if any does."""
    if spec.profile is not None and not (
        gpu.name in spec.profile.forward_s and gpu.name in spec.profile.backward_s
    ):
        return False
    stages = most_stages(spec)
    return stages is not None and any(fitting_stages(spec, gpu, stages))


def most_stages(spec: JobSpec) -> int | None:
    """The most stages within the job's bounds that its schedule can have; None where it can have none."""
    work, parallelism = Workload.of(spec), spec.parallelism
    most = min(parallelism.stages_max or spec.model.layers, spec.model.layers)
    possible = range(most, (parallelism.stages_min or 1) - 1, -1)
    return next((stages for stages in possible if can_have(work, stages)), None)


def _make_room(memo: dict[object, _T]) -> None:
    if len(memo) >= _REMEMBERED_DEMANDS:
        memo.clear()
