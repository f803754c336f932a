"""Whether a plan may be carried out: judged from the snapshot alone, apart from every policy.

Nothing here is shared with the code that makes plans (policies, network, restart, options, pathfinder, allocator):
what those modules believe to be free, or to have to travel, is counted again. Only the description of the world and
the physics of a job (`profile.py`, `parameters.py`) are common ground.

What a plan gives away may be what stopping jobs still hold, or jobs that it stops itself: capacities are compared with
what is held once those have left, promises included.

Tolerance: amounts of bandwidth may pass a capacity by a relative 1e-9 (rounding of sums of floats), GPUs by
nothing; a latency may differ from half the round trip by a relative 1e-9.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import groupby

from scheduler.cluster import Cluster, LinkKey, PoolKey
from scheduler.errors import InvalidValueError
from scheduler.job import Elasticity, JobSpec
from scheduler.parameters import parameter_count
from scheduler.placement import Placement, Transfer
from scheduler.plan import Hold, Move, Plan, Preempt, Reject, Start
from scheduler.profile import BYTES_PER_PARAMETER, in_flight_room, split_layers, stage_profiles
from scheduler.snapshot import RunningJob, Snapshot, StateSpan, WaitingJob

RELATIVE_TOLERANCE = 1e-9


class Rule(StrEnum):
    """What a plan must keep."""

    VERSION = "version"  # made against this snapshot
    ONCE_EACH = (
        "once-each"  # one decision for every waiting job, at most one for a running one, none for others
    )
    RUNNING = "running"  # only jobs that run, and are not stopping already, are preempted or moved
    ELASTICITY = (
        "elasticity"  # ... and only those that allow it, with as many stages as before where they ask that
    )
    REASONS = "reasons"  # whoever waits or is refused is told why
    GANG = "gang"  # whole stages of the size the job asked for, in numbers it allows
    REGION_ALLOWED = "region-allowed"
    ORDER = "order"  # of the schedule that was asked for, and whole
    BEGINNING = "beginning"  # the first stage stands at home, and where its data are or can be brought
    CHAIN = (
        "chain"  # each region once, each cut over links that exist, with a bandwidth and the right latency
    )
    GPUS = "gpus"
    QUOTA = "quota"  # no tenant holds more GPUs than it may
    SPENDING = "spending"  # or begins anything once its month's money is spent
    LINK = "link"
    UPLINK = "uplink"
    DOWNLINK = "downlink"
    MEMORY = "memory"
    TRANSFERS = "transfers"  # state travels from where it lies to where it is needed, no more and no less
    PREDICTION = "prediction"


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule that one decision breaks. `job_id` is empty where the plan as a whole breaks it."""

    job_id: str
    rule: Rule
    detail: str


@dataclass(frozen=True, slots=True)
class _Begun:
    """A placement that a plan gives: to a waiting job, or to a running one that it moves."""

    spec: JobSpec
    decision: Start | Move
    state: tuple[StateSpan, ...]
    """Where the job's checkpoint lies when it begins."""
    stages: int | None
    """The number it must keep, where it must."""
    avoid_regions: frozenset[str] = frozenset()
    require_regions: frozenset[str] = frozenset()
    brought: frozenset[str] = frozenset()
    """Where its data sets are because its first stage has stood there."""

    @property
    def job_id(self) -> str:
        return self.spec.job_id

    @property
    def placement(self) -> Placement:
        return self.decision.placement


def check_plan(snapshot: Snapshot, plan: Plan) -> tuple[Violation, ...]:
    """Everything that is wrong with a plan for this snapshot; empty if it may be applied."""
    waiting = {job.spec.job_id: job for job in snapshot.waiting}
    running = {job.spec.job_id: job for job in snapshot.running}
    found = list(_decisions(snapshot, plan, waiting, running))
    begun = [*_started(plan, waiting), *_moved(snapshot, plan, running)]
    for each in begun:
        found += _gang(each)
        found += _regions(each)
        found += _beginning(snapshot.cluster, each)
        found += _chain(snapshot.cluster, each)
        found += _memory(snapshot.cluster, each)
        found += _transfers(snapshot.cluster, each)
        found += _prediction(each)
    if begun:
        stopped = {each.job_id for each in plan.preemptions} | {each.job_id for each in plan.moves}
        leaving = [job for job in snapshot.running if job.stopping or job.spec.job_id in stopped]
        staying = [job for job in snapshot.running if not job.stopping and job.spec.job_id not in stopped]
        found += _gpus(snapshot, staying, leaving, begun)
        found += _bandwidth(snapshot, staying, begun)
        found += _quotas(snapshot, staying, begun)
    return tuple(found)


def _started(plan: Plan, waiting: dict[str, WaitingJob]) -> Iterator[_Begun]:
    for start in plan.starts:
        job = waiting.get(start.job_id)
        if job is not None:
            yield _Begun(
                job.spec, start, job.state, job.stages, job.avoid_regions, job.require_regions, job.brought
            )


def _moved(snapshot: Snapshot, plan: Plan, running: dict[str, RunningJob]) -> Iterator[_Begun]:
    for move in plan.moves:
        job = running.get(move.job_id)
        if job is not None:
            placement = job.allocation.placement
            restarting = job.ready_s is not None and snapshot.now_s < job.ready_s
            state = job.state if restarting else _state(job.spec, placement)
            keeps = None if job.spec.elasticity is Elasticity.RESIZE else placement.stages
            brought = job.brought | {placement.segments[0].region}
            yield _Begun(job.spec, move, state, keeps, job.avoid_regions, brought=brought)


def _decisions(
    snapshot: Snapshot, plan: Plan, waiting: dict[str, WaitingJob], running: dict[str, RunningJob]
) -> Iterator[Violation]:
    if plan.snapshot_version != snapshot.version:
        yield Violation(
            "",
            Rule.VERSION,
            f"made for snapshot {plan.snapshot_version}, checked against {snapshot.version}",
        )
    decided = Counter(decision.job_id for decision in plan.decisions)
    for job_id in sorted(waiting.keys() | decided.keys()):
        if job_id in waiting and decided[job_id] != 1:
            yield Violation(job_id, Rule.ONCE_EACH, f"decided {decided[job_id]} times instead of once")
        elif job_id in running and decided[job_id] > 1:
            yield Violation(job_id, Rule.ONCE_EACH, f"changed {decided[job_id]} times in one plan")
        elif job_id not in waiting and job_id not in running:
            yield Violation(job_id, Rule.ONCE_EACH, "decided, but it neither waits nor runs in this snapshot")
    for decision in plan.decisions:
        job_id = decision.job_id
        match decision:
            case Hold(position=position, reasons=reasons):
                if position < 1 or not reasons:
                    yield Violation(job_id, Rule.REASONS, "held without a position and a reason")
            case Reject(reasons=reasons):
                if not reasons:
                    yield Violation(job_id, Rule.REASONS, "rejected without a reason")
            case Start(why=why) | Move(why=why) | Preempt(why=why):
                if not why:
                    yield Violation(job_id, Rule.REASONS, "started, moved or preempted without saying why")
        if isinstance(decision, Preempt | Move):
            yield from _stop(job_id, running.get(job_id))
        elif job_id in running:
            yield Violation(job_id, Rule.ONCE_EACH, "decided as if it waited, but it runs")


def _stop(job_id: str, job: RunningJob | None) -> Iterator[Violation]:
    if job is None:
        yield Violation(job_id, Rule.RUNNING, "stopped, but it does not run")
    elif job.stopping:
        yield Violation(job_id, Rule.RUNNING, "stopped, but it is stopping already")
    elif job.spec.elasticity is Elasticity.NONE:
        yield Violation(job_id, Rule.ELASTICITY, "stopped, but its elasticity is none")


def _gang(start: _Begun) -> Iterator[Violation]:
    spec, placement = start.spec, start.placement
    wanted = spec.parallelism
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
    if start.stages is not None and placement.stages != start.stages:
        yield Violation(
            start.job_id,
            Rule.ELASTICITY,
            f"{placement.stages} stages, but it must go on with {start.stages}",
        )
    if min(placement.window) < 1:  # how many there are, a placement sees to itself
        yield Violation(start.job_id, Rule.GANG, "not every stage has an in-flight window of at least 1")
    yield from _order(start)


def _order(start: _Begun) -> Iterator[Violation]:
    """Where workers are told an order, all of them do the whole of every micro-batch."""
    spec, placement = start.spec, start.placement
    asked, given = spec.training.schedule, placement.schedule
    parts = placement.schedule.parts
    if asked.parts != parts or (parts > 1 and asked is not given):
        yield Violation(start.job_id, Rule.ORDER, f"{given} where {asked} was asked for")
    if parts > 1 and spec.model.layers % (parts * placement.stages):
        layers = f"{spec.model.layers} layers"
        yield Violation(
            start.job_id, Rule.ORDER, f"{layers} are not {parts} equal parts a stage of {placement.stages}"
        )
    if placement.order and not spec.training.splits_backward:
        yield Violation(start.job_id, Rule.ORDER, "its workers cannot be told an order")
    every = list(range(spec.training.micro_batches))
    for stage, text in enumerate(placement.order):
        told = _told(text)
        for forward, whole, split, rest in (tuple("FBIW"), tuple("fbiw"))[:parts]:
            backwards = told.pop(whole, [])
            done = told.pop(forward, []), backwards + told.pop(split, []), backwards + told.pop(rest, [])
            if any(sorted(each) != every for each in done):
                yield Violation(
                    start.job_id,
                    Rule.ORDER,
                    f"stage {stage} does not run {forward} and its backward once for each of {len(every)}",
                )
        if told:
            yield Violation(start.job_id, Rule.ORDER, f"stage {stage} is told {', '.join(sorted(told))}")


def _told(text: str) -> defaultdict[str, list[int]]:
    """For each letter of an order its micro-batches: as they are named, else the next; of W, the oldest without one."""
    told: defaultdict[str, list[int]] = defaultdict(list)
    following: Counter[str] = Counter()
    pending: defaultdict[str, list[int]] = defaultdict(list)
    for letter, number in _computations(text):
        waiting = pending["w" if letter.islower() else "W"]
        if letter in "Ww":
            micro_batch = int(number) if number else next(iter(waiting), -1)
            waiting[:] = [each for each in waiting if each != micro_batch]
        else:
            turn = letter.replace("I", "B").replace("i", "b")
            micro_batch = int(number) if number else following[turn]
            following[turn] = micro_batch + 1
            if letter in "Ii":
                waiting.append(micro_batch)
        told[letter].append(micro_batch)
    return told


def _computations(text: str) -> list[tuple[str, str]]:
    """The letters of an order, repeated as often as it says, each with the micro-batch that is named, if one is."""
    whole = re.sub(r"\[([A-Za-z]+)\](\d+)", lambda found: found[1] * int(found[2]), text)
    return re.findall(r"(\D)(\d*)", whole)


def _regions(start: _Begun) -> Iterator[Violation]:
    rule, used = start.spec.placement, {segment.region for segment in start.placement.segments}
    for region in sorted(used):
        if rule.regions and not any(fnmatchcase(region, glob) for glob in rule.regions):
            yield Violation(start.job_id, Rule.REGION_ALLOWED, f"{region} is not one of {rule.regions}")
        if any(fnmatchcase(region, glob) for glob in rule.exclude):
            yield Violation(start.job_id, Rule.REGION_ALLOWED, f"{region} is excluded by {rule.exclude}")
        if region in start.avoid_regions:
            yield Violation(start.job_id, Rule.REGION_ALLOWED, f"{region} cools down after a failure")
        if start.require_regions and region not in start.require_regions:
            yield Violation(start.job_id, Rule.REGION_ALLOWED, f"{region} cannot reach the checkpoint")
    if rule.max_regions is not None and len(used) > rule.max_regions:
        yield Violation(
            start.job_id, Rule.REGION_ALLOWED, f"{len(used)} regions, at most {rule.max_regions} allowed"
        )


def _beginning(cluster: Cluster, start: _Begun) -> Iterator[Violation]:
    spec, first = start.spec, start.placement.segments[0].region
    home = spec.placement.home
    if home is not None and first != home:
        yield Violation(start.job_id, Rule.BEGINNING, f"begins in {first}, its home is {home}")
    for number, data in enumerate(spec.data):
        there = not data.regions or first in data.regions or first in start.brought
        if not there and not any((region, first) in cluster.links for region in data.regions):
            yield Violation(
                start.job_id,
                Rule.BEGINNING,
                f"begins in {first}, and no link brings data set {number} there from {', '.join(data.regions)}",
            )


def _chain(cluster: Cluster, start: _Begun) -> Iterator[Violation]:
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


def _memory(cluster: Cluster, start: _Begun) -> Iterator[Violation]:
    spec, placement = start.spec, start.placement
    types = [
        cluster.gpu_types.get(segment.gpu_type)
        for segment in placement.segments
        for _ in range(segment.stages)
    ]
    gpus = [gpu for gpu in types if gpu is not None]
    if len(gpus) < len(types) or placement.stages * placement.schedule.parts > spec.model.layers:
        return  # told by the rules on GPUs and on the gang
    try:
        profiles = stage_profiles(spec, gpus)
    except InvalidValueError as error:  # its measured profile lacks one of the types
        yield Violation(start.job_id, Rule.MEMORY, str(error))
        return
    for stage, (profile, gpu) in enumerate(zip(profiles, gpus, strict=True)):
        held = _held(placement, stage, profile.pending_share)
        most = in_flight_room(profile, gpu)
        if held > most:
            yield Violation(
                start.job_id,
                Rule.MEMORY,
                f"stage {stage} holds {held:g} micro-batches, the memory of {gpu.name} is enough for {most:.4g}",
            )


def _held(placement: Placement, stage: int, pending_share: float) -> float:
    """Micro-batches of which a stage holds activations, at most: a part of them until gradients of weights are done."""
    if not placement.order:
        return placement.window[stage] + (placement.lag[stage] * pending_share if placement.lag else 0)
    most, flying, pending = 0.0, 0, 0
    for letter, _ in _computations(placement.order[stage].upper()):
        flying += (letter == "F") - (letter in "BI")
        pending += (letter == "I") - (letter == "W")
        most = max(most, flying + pending * pending_share)
    return most


def _transfers(cluster: Cluster, start: _Begun) -> Iterator[Violation]:
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
    stands = [span.region for span in _state(spec, placement) for _ in range(span.layers)]
    crossing = Counter((src, dst) for src, dst in zip(lies, stands, strict=True) if src != dst)
    whole = BYTES_PER_PARAMETER * parameter_count(spec.model)
    total = spec.profile.stage_memory_bytes if spec.profile else float(whole)
    return {pair: total * layers / spec.model.layers for pair, layers in crossing.items()}


def _state(spec: JobSpec, placement: Placement) -> tuple[StateSpan, ...]:
    """The layers that stand in each region, in their order."""
    regions = [segment.region for segment in placement.segments for _ in range(segment.stages)]
    if placement.schedule.parts > 1:
        regions += regions if placement.schedule.loops else regions[::-1]
    parts = zip(regions, split_layers(spec.model, len(regions)), strict=True)
    return tuple(StateSpan(region, layers) for region, layers in parts)


def _prediction(start: _Begun) -> Iterator[Violation]:
    predicted_s = start.decision.predicted_iteration_s
    if not (math.isfinite(predicted_s) and predicted_s > 0):
        yield Violation(start.job_id, Rule.PREDICTION, f"{predicted_s} s is not an iteration time")


def _gpus(
    snapshot: Snapshot, staying: list[RunningJob], leaving: list[RunningJob], starts: list[_Begun]
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


def _quotas(snapshot: Snapshot, staying: list[RunningJob], starts: list[_Begun]) -> Iterator[Violation]:
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


def _bandwidth(snapshot: Snapshot, staying: list[RunningJob], starts: list[_Begun]) -> Iterator[Violation]:
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
