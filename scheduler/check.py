"""Whether a plan may be carried out: judged from the snapshot alone, apart from every policy.

Nothing here is shared with the code that makes plans (policies, network, options, pathfinder, allocator): what
those modules believe to be free is counted again. Only the description of the world and the memory of a stage
(`profile.py`, the physics) are common ground.

Tolerance: amounts of bandwidth may pass a capacity by a relative 1e-9 (rounding of sums of floats), GPUs by
nothing; a latency may differ from half the round trip by a relative 1e-9.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import groupby

from scheduler.cluster import Cluster, LinkKey, PoolKey
from scheduler.errors import InvalidValueError
from scheduler.job import JobSpec
from scheduler.placement import Placement
from scheduler.plan import Hold, Plan, Reject, Start
from scheduler.profile import in_flight_limit, stage_profiles
from scheduler.snapshot import Snapshot, WaitingJob

RELATIVE_TOLERANCE = 1e-9


class Rule(StrEnum):
    """What a plan must keep."""

    VERSION = "version"  # made against this snapshot
    ONCE_EACH = "once-each"  # one decision for every waiting job, none for others
    REASONS = "reasons"  # whoever waits or is refused is told why
    GANG = "gang"  # whole stages of the size the job asked for, in numbers it allows
    REGION_ALLOWED = "region-allowed"
    CHAIN = (
        "chain"  # each region once, each cut over links that exist, with a bandwidth and the right latency
    )
    GPUS = "gpus"
    LINK = "link"
    UPLINK = "uplink"
    DOWNLINK = "downlink"
    MEMORY = "memory"
    PREDICTION = "prediction"


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule that one decision breaks. `job_id` is empty where the plan as a whole breaks it."""

    job_id: str
    rule: Rule
    detail: str


def check_plan(snapshot: Snapshot, plan: Plan) -> tuple[Violation, ...]:
    """Everything that is wrong with a plan for this snapshot; empty if it may be applied."""
    waiting = {job.spec.job_id: job for job in snapshot.waiting}
    starts = [start for start in plan.starts if start.job_id in waiting]
    found = list(_decisions(snapshot, plan, waiting))
    for start in starts:
        job = waiting[start.job_id]
        found += _gang(job.spec, start)
        found += _regions(job, start)
        found += _chain(snapshot.cluster, start)
        found += _memory(snapshot.cluster, job.spec, start)
        found += _prediction(start)
    found += _gpus(snapshot, starts)
    found += _bandwidth(snapshot, starts)
    return tuple(found)


def _decisions(snapshot: Snapshot, plan: Plan, waiting: dict[str, WaitingJob]) -> Iterator[Violation]:
    if plan.snapshot_version != snapshot.version:
        yield Violation(
            "",
            Rule.VERSION,
            f"made for snapshot {plan.snapshot_version}, checked against {snapshot.version}",
        )
    decided = Counter(decision.job_id for decision in plan.decisions)
    for job_id in sorted(waiting.keys() | decided.keys()):
        if job_id not in waiting:
            yield Violation(job_id, Rule.ONCE_EACH, "decided, but it does not wait in this snapshot")
        elif decided[job_id] != 1:
            yield Violation(job_id, Rule.ONCE_EACH, f"decided {decided[job_id]} times instead of once")
    for decision in plan.decisions:
        match decision:
            case Hold(job_id, position, reasons):
                if position < 1 or not reasons:
                    yield Violation(job_id, Rule.REASONS, "held without a position and a reason")
            case Reject(job_id, reasons):
                if not reasons:
                    yield Violation(job_id, Rule.REASONS, "rejected without a reason")
            case Start(job_id=job_id, why=why):
                if not why:
                    yield Violation(job_id, Rule.REASONS, "started without saying why there")


def _gang(spec: JobSpec, start: Start) -> Iterator[Violation]:
    wanted, placement = spec.parallelism, start.placement
    size = round(wanted.tensor * wanted.data)
    for segment in placement.segments:
        if segment.gpus_per_stage != size:
            yield Violation(
                start.job_id,
                Rule.GANG,
                f"{segment.gpus_per_stage} GPUs a stage in {segment.region}, the job needs {size}",
            )
    least = wanted.stages_min or 1
    most = min(wanted.stages_max or spec.model.layers, spec.model.layers)
    if not least <= placement.stages <= most:
        yield Violation(
            start.job_id, Rule.GANG, f"{placement.stages} stages, the job allows {least} to {most}"
        )
    if len(placement.window) != placement.stages or min(placement.window) < 1:
        yield Violation(start.job_id, Rule.GANG, "not every stage has an in-flight window of at least 1")


def _regions(job: WaitingJob, start: Start) -> Iterator[Violation]:
    rule, used = job.spec.placement, {segment.region for segment in start.placement.segments}
    for region in sorted(used):
        if rule.regions and not any(fnmatchcase(region, glob) for glob in rule.regions):
            yield Violation(start.job_id, Rule.REGION_ALLOWED, f"{region} is not one of {rule.regions}")
        if any(fnmatchcase(region, glob) for glob in rule.exclude):
            yield Violation(start.job_id, Rule.REGION_ALLOWED, f"{region} is excluded by {rule.exclude}")
        if region in job.avoid_regions:
            yield Violation(start.job_id, Rule.REGION_ALLOWED, f"{region} cools down after a failure")
        if job.require_regions and region not in job.require_regions:
            yield Violation(start.job_id, Rule.REGION_ALLOWED, f"{region} cannot reach the checkpoint")
    if rule.max_regions is not None and len(used) > rule.max_regions:
        yield Violation(
            start.job_id, Rule.REGION_ALLOWED, f"{len(used)} regions, at most {rule.max_regions} allowed"
        )


def _chain(cluster: Cluster, start: Start) -> Iterator[Violation]:
    placement = start.placement
    blocks = [region for region, _ in groupby(segment.region for segment in placement.segments)]
    if len(blocks) != len(set(blocks)):
        yield Violation(start.job_id, Rule.CHAIN, f"enters a region twice: {' > '.join(blocks)}")
    for cut in placement.cuts:
        there, back = cluster.links.get((cut.src, cut.dst)), cluster.links.get((cut.dst, cut.src))
        name = f"cut {cut.src} > {cut.dst}"
        if there is None or back is None:
            yield Violation(start.job_id, Rule.CHAIN, f"{name}: there is no link in both directions")
            continue
        if not (math.isfinite(cut.bandwidth_bps) and cut.bandwidth_bps > 0):
            yield Violation(start.job_id, Rule.CHAIN, f"{name}: {cut.bandwidth_bps} bit/s is not a bandwidth")
        latency_s = (there.latency_s + back.latency_s) / 2
        if not math.isclose(cut.latency_s, latency_s, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-15):
            yield Violation(
                start.job_id,
                Rule.CHAIN,
                f"{name}: latency {cut.latency_s} s, half the round trip is {latency_s} s",
            )


def _memory(cluster: Cluster, spec: JobSpec, start: Start) -> Iterator[Violation]:
    placement = start.placement
    types = [
        cluster.gpu_types.get(segment.gpu_type)
        for segment in placement.segments
        for _ in range(segment.stages)
    ]
    gpus = [gpu for gpu in types if gpu is not None]
    if len(gpus) < len(types) or placement.stages > spec.model.layers:
        return  # told by the rules on GPUs and on the gang
    try:
        profiles = stage_profiles(spec, gpus)
    except InvalidValueError as error:  # its measured profile lacks one of the types
        yield Violation(start.job_id, Rule.MEMORY, str(error))
        return
    for stage, (profile, gpu) in enumerate(zip(profiles, gpus, strict=True)):
        window, most = placement.window[stage], in_flight_limit(profile, gpu)
        if window > most:
            yield Violation(
                start.job_id,
                Rule.MEMORY,
                f"stage {stage} holds {window} micro-batches, the memory of {gpu.name} is enough for {most}",
            )


def _prediction(start: Start) -> Iterator[Violation]:
    if not (math.isfinite(start.predicted_iteration_s) and start.predicted_iteration_s > 0):
        yield Violation(
            start.job_id, Rule.PREDICTION, f"{start.predicted_iteration_s} s is not an iteration time"
        )


def _gpus(snapshot: Snapshot, starts: list[Start]) -> Iterator[Violation]:
    """GPUs of every pool that a start uses, what runs already included."""
    cluster = snapshot.cluster
    if cluster.nodes:
        room: Counter[PoolKey] = Counter()
        for node in cluster.nodes:
            room[node.region, node.gpu_type] += len(set(node.free_gpus))
    else:
        room = Counter({key: pool.gpus for key, pool in cluster.pools.items()})
        room.subtract(_held_gpus(job.allocation.placement for job in snapshot.running))
    taken = _held_gpus(start.placement for start in starts)
    for pool, gpus in sorted(taken.items()):
        if gpus > room[pool]:
            jobs = ", ".join(
                sorted(
                    start.job_id
                    for start in starts
                    if any((s.region, s.gpu_type) == pool for s in start.placement.segments)
                )
            )
            yield Violation(
                jobs, Rule.GPUS, f"{pool[0]}/{pool[1]}: {gpus} GPUs promised, {max(0, room[pool])} are free"
            )


def _held_gpus(placements: Iterable[Placement]) -> Counter[PoolKey]:
    held: Counter[PoolKey] = Counter()
    for placement in placements:
        for segment in placement.segments:
            held[segment.region, segment.gpu_type] += segment.gpus
    return held


def _bandwidth(snapshot: Snapshot, starts: list[Start]) -> Iterator[Violation]:
    """Links, uplinks and downlinks that a start uses: all grants over them, running ones too, against capacity."""
    cluster = snapshot.cluster
    load: defaultdict[tuple[Rule, LinkKey | str], list[float]] = defaultdict(list)
    users: defaultdict[tuple[Rule, LinkKey | str], set[str]] = defaultdict(set)
    for job in snapshot.running:
        for resource, bandwidth in _uses(job.allocation.placement):
            load[resource].append(bandwidth)
    for start in starts:
        for resource, bandwidth in _uses(start.placement):
            load[resource].append(bandwidth)
            users[resource].add(start.job_id)
    for resource in sorted(users, key=str):
        rule, what = resource
        if isinstance(what, tuple):
            link = cluster.links.get(what)
            capacity, name = (link.capacity_bps if link else 0.0), f"{what[0]}->{what[1]}"
        else:
            region = cluster.regions.get(what)
            name = what
            capacity = 0.0
            if region is not None:
                capacity = region.uplink_bps if rule is Rule.UPLINK else region.downlink_bps
        total = math.fsum(load[resource])
        if total > capacity * (1 + RELATIVE_TOLERANCE):
            yield Violation(
                ", ".join(sorted(users[resource])),
                rule,
                f"{rule} {name}: {total:.17g} bit/s promised of {capacity:.17g}",
            )


def _uses(placement: Placement) -> Iterator[tuple[tuple[Rule, LinkKey | str], float]]:
    """What every cut holds: its bandwidth in both directions, on the links and on both ends."""
    for cut in placement.cuts:
        for src, dst in ((cut.src, cut.dst), (cut.dst, cut.src)):
            yield (Rule.LINK, (src, dst)), cut.bandwidth_bps
            yield (Rule.UPLINK, src), cut.bandwidth_bps
            yield (Rule.DOWNLINK, dst), cut.bandwidth_bps
