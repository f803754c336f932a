"""Whether all that is given away together is there: GPUs, bandwidth, and what each tenant may hold and spend."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from scheduler.check.rules import RELATIVE_TOLERANCE, Begun, Rule, Violation
from scheduler.cluster import LinkKey, PoolKey
from scheduler.placement import Placement, Transfer
from scheduler.plan import Start
from scheduler.snapshot import RunningJob, Snapshot


def gpus(
    snapshot: Snapshot, staying: list[RunningJob], leaving: list[RunningJob], starts: list[Begun]
) -> Iterator[Violation]:
    """GPUs of every pool that a start uses, what runs on and what is promised already included."""
    cluster = snapshot.cluster
    room: Counter[PoolKey] = Counter()
    if cluster.nodes:
        for node in cluster.nodes:
            room[node.region, node.gpu_type] += len(set(node.free_gpus))
        room.update(_held_gpus(job.allocation.placement for job in leaving))
    else:
        room.update({key: pool.gpus for key, pool in cluster.pools.items()})
        room.subtract(_held_gpus(job.allocation.placement for job in staying))
    room.subtract(_held_gpus(promise.placement for promise in snapshot.promised))
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


def quotas(snapshot: Snapshot, staying: list[RunningJob], starts: list[Begun]) -> Iterator[Violation]:
    """GPUs of every tenant that is given any, with what it holds on and what is promised to it. One that holds more
    than it may already, because that was changed, may go on, but not hold more than it does."""
    for project, quota in sorted(snapshot.quotas.items()):
        given = [start for start in starts if start.spec.project == project]
        jobs = ", ".join(sorted(start.job_id for start in given))
        if given and quota.gpus is not None:
            kept = [job.allocation.placement for job in staying if job.spec.project == project]
            kept += [each.placement for each in snapshot.promised if each.spec.project == project]
            after = _held_gpus([*kept, *(start.placement for start in given)]).total()
            before = _held_gpus(
                job.allocation.placement for job in snapshot.running if job.spec.project == project
            ).total()
            begins_any = any(isinstance(start.decision, Start) for start in given)
            if after > quota.gpus and (begins_any or after > before):
                yield Violation(
                    jobs, Rule.QUOTA, f"{project}: {after} GPUs held of {quota.gpus} that it may hold"
                )
        spent_out = quota.usd_per_month is not None and quota.spent_usd >= quota.usd_per_month
        if spent_out and any(isinstance(start.decision, Start) for start in given):
            yield Violation(
                jobs,
                Rule.SPENDING,
                f"{project}: has spent {quota.spent_usd:g} USD of {quota.usd_per_month:g}",
            )


def _held_gpus(placements: Iterable[Placement]) -> Counter[PoolKey]:
    held: Counter[PoolKey] = Counter()
    for placement in placements:
        for segment in placement.segments:
            held[segment.region, segment.gpu_type] += segment.gpus
    return held


def bandwidth(snapshot: Snapshot, staying: list[RunningJob], starts: list[Begun]) -> Iterator[Violation]:
    """Links, uplinks and downlinks that a start uses: all grants over them against their capacity."""
    cluster = snapshot.cluster
    load: defaultdict[tuple[Rule, LinkKey | str], list[float]] = defaultdict(list)
    users: defaultdict[tuple[Rule, LinkKey | str], set[str]] = defaultdict(set)
    for job in staying:
        for resource, bandwidth in _uses(job.allocation.placement, job.transfers):
            load[resource].append(bandwidth)
    for promise in snapshot.promised:
        for resource, bandwidth in _uses(promise.placement, promise.transfers):
            load[resource].append(bandwidth)
    for start in starts:
        for resource, bandwidth in _uses(start.placement, start.decision.transfers):
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


def _uses(
    placement: Placement, transfers: Iterable[Transfer]
) -> Iterator[tuple[tuple[Rule, LinkKey | str], float]]:
    """What cuts hold in both directions and transfers in one: on the links and on both ends."""
    for cut in placement.cuts:
        for src, dst in ((cut.src, cut.dst), (cut.dst, cut.src)):
            yield (Rule.LINK, (src, dst)), cut.bandwidth_bps
            yield (Rule.UPLINK, src), cut.bandwidth_bps
            yield (Rule.DOWNLINK, dst), cut.bandwidth_bps
    for transfer in transfers:
        yield (Rule.LINK, (transfer.src, transfer.dst)), transfer.bandwidth_bps
        yield (Rule.UPLINK, transfer.src), transfer.bandwidth_bps
        yield (Rule.DOWNLINK, transfer.dst), transfer.bandwidth_bps
