"""Why a job cannot start now, or never can: what it needs, what there is, and by how much they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from scheduler.allocator import Offer
from scheduler.cluster import Cluster, LinkKey
from scheduler.job import JobSpec
from scheduler.network import Residual, Topology
from scheduler.options import Candidate, Demand, StageCounts, most_stages, stage_counts
from scheduler.pathfinder import find_path
from scheduler.policies.proposal import plural
from scheduler.policies.world import World
from scheduler.profile import USABLE_MEMORY, Workload, least_window, stage_profiles
from scheduler.reasons import Reason, ReasonCode
from scheduler.units import format_bandwidth, format_bytes

NeedBps = Callable[[Candidate], int]
"""The least that a cut must get for a policy to join two regions, in whole bits per second."""


def to_keep_up(candidate: Candidate) -> int:
    """What a cut needs in order not to set the pace of the least number of stages."""
    return candidate.stage_counts.need_bps[0]


@dataclass(frozen=True, slots=True)
class Shortage:
    """How near a candidate is to a start: stages that could stand now, of those that it needs at least."""

    candidate: Candidate
    alone: Offer | None
    """The offer of the roomiest pool that holds a stage, where the chain may begin."""
    room: int
    """Stages that as many regions as the job may use hold together, whatever joins them."""
    joined: int
    """Stages that the longest chain found holds whose links have the least that the policy accepts; the least number
    that is needed where there is a chain for it, found by the policy or not."""

    @property
    def missing(self) -> int:
        """Stages that cannot be joined now, of the least number."""
        return max(0, self.candidate.stage_counts.floor - min(self.joined, self.room))


def shortage(
    demand: Demand, candidate: Candidate, world: World, need: int, *, crosses_regions: bool
) -> Shortage:
    """Measures what is free now against the least that the candidate needs, `need` being that of a cut."""
    offers = world.offers(demand, candidate)
    first = [offer for offer in offers if offer.region in demand.begins]
    alone = min(first, key=lambda each: (-each.slots, each.pool), default=None)
    slots: dict[str, int] = {}
    for offer in offers:
        slots[offer.region] = slots.get(offer.region, 0) + offer.slots
    room = sum(sorted(slots.values(), reverse=True)[: demand.max_regions])
    joined = alone.slots if alone else 0
    if crosses_regions and alone:
        # The same growth, asked for any number of stages at that bandwidth; then the search, for all of them.
        floor = candidate.stage_counts.floor
        for counts in (tuple(range(1, floor + 1)), (floor,)):
            if joined < floor <= room:
                eased = StageCounts((), counts, (0.0,) * len(counts), (need,) * len(counts))
                path = find_path(
                    eased,
                    len(counts) - 1,
                    demand.max_regions,
                    offers,
                    world.residual,
                    demand.begins,
                    world.seed,
                )
                joined = max(joined, path.stages if path else 0)
    return Shortage(candidate, alone, room, joined)


def held_reasons(
    demand: Demand, world: World, need_bps: NeedBps, *, crosses_regions: bool, mixes_gpu_types: bool
) -> tuple[Reason, ...]:
    """Why the job cannot start on what is free now; never empty."""
    usable = [each for each in demand.candidates if mixes_gpu_types or len(each.stage_counts.gpu_types) == 1]
    if not usable:
        return tuple(filtered_reasons(demand)) or never_reasons(
            demand,
            world.residual.topology,
            crosses_regions=crosses_regions,
            mixes_gpu_types=mixes_gpu_types,
        )
    # One that lacks something tells more than one where only order or memory is in the way.
    nearest = min(
        (shortage(demand, each, world, need_bps(each), crosses_regions=crosses_regions) for each in usable),
        key=lambda each: (each.missing == 0, each.missing),
    )
    floor, size = nearest.candidate.stage_counts.floor, demand.gpus_per_stage
    asked = f"at least {_stages_of(floor, size)}"
    if len(world.cluster.gpu_types) > 1:
        asked += f" on {' or '.join(nearest.candidate.stage_counts.gpu_types)}"
    if not crosses_regions:
        best = nearest.alone
        there = f"{best.region} holds {best.slots} of them now" if best else "no region holds even one now"
        return (
            Reason(
                ReasonCode.GPUS_EXHAUSTED,
                f"needs {asked} in one region; {there}",
                region=best.region if best else None,
                needed=floor * size,
                available=best.slots * size if best else 0,
            ),
        )
    if nearest.room < floor:
        return (
            Reason(
                ReasonCode.GPUS_EXHAUSTED,
                f"needs {asked}; the regions it may use have room for {nearest.room} now",
                needed=floor * size,
                available=nearest.room * size,
            ),
        )
    if not nearest.missing:
        elsewhere = (
            f"needs {asked}; so many GPUs are free in regions that links join, but not of the types or in the "
            "order of regions that this policy can use"
        )
        return (Reason(ReasonCode.CHAIN_TOO_SHORT, elsewhere, needed=floor),)
    need = need_bps(nearest.candidate)
    short = Reason(
        ReasonCode.CHAIN_TOO_SHORT,
        f"needs {asked}; the longest chain of regions found{_from(demand)} over links with {format_bandwidth(need)} "
        f"for a cut holds {nearest.joined}",
        needed=floor,
        available=nearest.joined,
    )
    return (short, *narrow_links(demand, nearest.candidate, world, need)[:1])


def narrow_links(demand: Demand, candidate: Candidate, world: World, need: int) -> tuple[Reason, ...]:
    """The links between regions with free slots that lack what a cut needs, the widest of them first."""
    regions = sorted({offer.region for offer in world.offers(demand, candidate)})
    found: list[tuple[float, LinkKey, Reason]] = []
    for a in regions:
        for b in regions:
            if a < b:
                reason = lack_of_bandwidth(world.residual, a, b, need)
                if reason is not None:
                    found.append((-(reason.available or 0.0), (a, b), reason))
    return tuple(reason for _, _, reason in sorted(found, key=lambda each: each[:2]))


def lack_of_bandwidth(residual: Residual, a: str, b: str, need_bps: float) -> Reason | None:
    """What keeps a cut of that bandwidth from standing between two regions; None if nothing does."""
    topology = residual.topology
    if (a, b) not in topology.pair_latency_s:
        return Reason(ReasonCode.NO_LINK, f"no link joins {a} and {b} in both directions", link=(a, b))
    limits = [
        (residual.own_link_bps(link), ReasonCode.LINK_BANDWIDTH_EXHAUSTED, f"the link {link[0]} > {link[1]}")
        for link in ((a, b), (b, a))
    ]
    for region in (a, b):
        up, down = residual.uplink_bps(region), residual.downlink_bps(region)
        limits.append((up, ReasonCode.UPLINK_EXHAUSTED, f"the uplink of {region}"))
        limits.append((down, ReasonCode.DOWNLINK_EXHAUSTED, f"the downlink of {region}"))
    least, code, name = min(limits, key=lambda each: each[0])
    if least >= need_bps:
        return None
    return Reason(
        code,
        f"{name} has {format_bandwidth(least)} left, a cut needs {format_bandwidth(need_bps)}",
        link=(a, b),
        needed=need_bps,
        available=least,
    )


def filtered_reasons(demand: Demand) -> Iterator[Reason]:
    """A reason for every region that a rule keeps out."""
    for region, why in demand.filtered:
        yield Reason(ReasonCode.REGION_FILTERED, f"{region}: {why}", region=region)


def never_reasons(
    demand: Demand, topology: Topology, *, crosses_regions: bool, mixes_gpu_types: bool
) -> tuple[Reason, ...]:
    """Why a job that does not even fit an empty cluster never runs there, and by how much it is too large."""
    if all(floor is None for _, floor in demand.floor_by_type):
        return (too_much_memory(demand, topology),)
    if not demand.regions:
        first = Reason(ReasonCode.NEVER_FITS, "no region of this cluster is one that the job may use")
        return (first, *filtered_reasons(demand))
    if not demand.begins:
        return (no_beginning(demand),)
    small = too_small(demand, topology, crosses_regions=crosses_regions, mixes_gpu_types=mixes_gpu_types)
    return (small, *filtered_reasons(demand))


def no_beginning(demand: Demand) -> Reason:
    """No region may hold the first stage: the home that the job names is not there, or its data reach none."""
    home = demand.spec.placement.home
    if home is not None and home not in demand.regions:
        detail = f"its home {home} is not a region of this cluster that it may use"
        return Reason(ReasonCode.NEVER_FITS, detail, region=home)
    where = "any region that it may use" if home is None else f"its home {home}"
    detail = f"no link leads from where its data lie to {where}"
    return Reason(ReasonCode.DATA_UNREACHABLE, detail, region=home)


def too_small(demand: Demand, topology: Topology, *, crosses_regions: bool, mixes_gpu_types: bool) -> Reason:
    """The cluster, or each region alone, has too few GPUs for the least number of stages."""
    size, most_regions = demand.gpus_per_stage, demand.max_regions if crosses_regions else 1
    names = demand.regions if crosses_regions else demand.begins
    missing, floor, types, gpus = min(
        _missing(types, floor, size, names, most_regions, topology.cluster)
        for types, floor in _floors(demand, topology, mixes_gpu_types=mixes_gpu_types)
    )
    on = " or ".join(types)
    place = "the regions it may use" if most_regions > 1 else "the largest region it may use"
    if missing <= 0:
        detail = (
            f"needs {_stages_of(floor, size)} ({on}); {place} have them, but no chain of links "
            f"of this cluster joins them with what a cut needs"
        )
        return Reason(ReasonCode.NEVER_FITS, detail, needed=floor * size)
    if 1 < most_regions < len(names):
        place = f"the {most_regions} largest regions it may use"
    held = floor - missing
    there = f"{place} {'have' if most_regions > 1 else 'has'} {plural(gpus, 'GPU')} when all is free"
    whole = "on one type in one region" if len(types) > 1 else "in one region"
    short = (
        f": {plural(missing * size, 'GPU')} too few"
        if gpus == held * size
        else f", in which {plural(held, 'stage')} can stand, each {whole}: {plural(missing, 'stage')} too few"
    )
    detail = (
        f"needs at least {plural(floor * size, 'GPU')} ({_stages_of(floor, size)} on {on}); {there}{short}"
    )
    return Reason(ReasonCode.NEVER_FITS, detail, needed=floor * size, available=held * size)


def _floors(
    demand: Demand, topology: Topology, *, mixes_gpu_types: bool
) -> Iterator[tuple[tuple[str, ...], int]]:
    """The least number of stages on each GPU type alone, then on all of them together where a policy mixes them."""
    known = [((name,), floor) for name, floor in demand.floor_by_type if floor is not None]
    yield from known
    if mixes_gpu_types and len(known) > 1:
        names = tuple(name for (name,), _ in known)
        counts = stage_counts(demand.spec, tuple(topology.cluster.gpu_types[name] for name in names))
        if counts is not None:
            yield names, counts.floor


def _missing(
    types: tuple[str, ...], floor: int, size: int, names: Iterable[str], most_regions: int, cluster: Cluster
) -> tuple[int, int, tuple[str, ...], int]:
    """(stages that the roomiest regions lack of `floor` when all is free, floor, types, the GPUs that they have)."""
    gpus = [
        [cluster.pools[name, each].gpus for each in types if (name, each) in cluster.pools] for name in names
    ]
    room = sorted(((sum(one // size for one in pools), sum(pools)) for pools in gpus), reverse=True)
    widest = room[:most_regions]
    return floor - sum(slots for slots, _ in widest), floor, types, sum(there for _, there in widest)


def too_much_memory(demand: Demand, topology: Topology) -> Reason:
    """No number of stages within the job's bounds fits in the memory of any GPU type."""
    spec = demand.spec
    stages = most_stages(spec)
    if stages is None:
        return _no_such_stages(spec)
    allowed, rule = spec.training.versions.most_in_flight, ""
    if allowed is not None and allowed < min(stages, spec.training.micro_batches):
        stages, rule = allowed, f", the most with its `updates` ({allowed} micro-batches in flight),"
    windows = least_window(Workload.of(spec), stages)
    best: tuple[float, float, str] | None = None
    for gpu_type, _ in demand.floor_by_type:
        gpu = topology.cluster.gpu_types[gpu_type]
        if spec.profile is not None and gpu_type not in spec.profile.forward_s:
            continue
        profiles = stage_profiles(spec, (gpu,) * stages)
        needed = max(
            each.weight_bytes + each.inflight_bytes * window
            for each, window in zip(profiles, windows, strict=True)
        )
        entry = (needed - USABLE_MEMORY * gpu.memory_bytes, needed, gpu_type)
        best = entry if best is None else min(best, entry)
    if best is None:
        known = ", ".join(sorted(spec.profile.forward_s)) if spec.profile else "none"
        return Reason(
            ReasonCode.NEVER_FITS,
            f"its measured profile is for {known}; this cluster has none of these GPU types",
        )
    _, needed, gpu_type = best
    usable = USABLE_MEMORY * topology.cluster.gpu_types[gpu_type].memory_bytes
    return Reason(
        ReasonCode.MEMORY_TOO_SMALL,
        f"even as {plural(stages, 'stage')}{rule} a GPU must hold {format_bytes(needed)}; "
        f"{gpu_type} has {format_bytes(usable)} to use: {format_bytes(needed - usable)} too much. "
        "More stages, a larger tensor size, a smaller micro-batch or recompute: full would lower it",
        needed=needed,
        available=usable,
    )


def _no_such_stages(spec: JobSpec) -> Reason:
    """Its schedule has no order for any number of stages within the job's bounds."""
    bounds = spec.parallelism
    least, most = bounds.stages_min or 1, min(bounds.stages_max or spec.model.layers, spec.model.layers)
    within = plural(most, "stage") if least == most else f"{least} to {most} stages"
    schedule = spec.training.schedule
    return Reason(
        ReasonCode.NEVER_FITS,
        f"{schedule.value} has no order for {within}, {plural(spec.model.layers, 'layer')} and "
        f"{spec.training.micro_batches} micro-batches (docs/pipelines.md#orders); other numbers or schedule: auto do",
    )


def _from(demand: Demand) -> str:
    """Where a chain has to begin, where it may not begin anywhere."""
    return "" if len(demand.begins) == len(demand.regions) else f" from {' or '.join(demand.begins)}"


def _stages_of(stages: int, gpus: int) -> str:
    return f"{plural(stages, 'stage')} of {plural(gpus, 'GPU')}"
