"""Whether the place that a job is given is one that it asked for, and one on which it can run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import groupby

from scheduler.check.order import computations, order
from scheduler.check.rules import RELATIVE_TOLERANCE, Begun, Rule, Violation
from scheduler.cluster import Cluster
from scheduler.errors import InvalidValueError
from scheduler.placement import Placement
from scheduler.profile import in_flight_room, stage_profiles


def gang(start: Begun) -> Iterator[Violation]:
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
    yield from order(start)


def regions(start: Begun) -> Iterator[Violation]:
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


def beginning(cluster: Cluster, start: Begun) -> Iterator[Violation]:
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


def chain(cluster: Cluster, start: Begun) -> Iterator[Violation]:
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


def memory(cluster: Cluster, start: Begun) -> Iterator[Violation]:
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
    for letter, _ in computations(placement.order[stage].upper()):
        flying += (letter == "F") - (letter in "BI")
        pending += (letter == "I") - (letter == "W")
        most = max(most, flying + pending * pending_share)
    return most


def prediction(start: Begun) -> Iterator[Violation]:
    predicted_s = start.decision.predicted_iteration_s
    if not (math.isfinite(predicted_s) and predicted_s > 0):
        yield Violation(start.job_id, Rule.PREDICTION, f"{predicted_s} s is not an iteration time")
