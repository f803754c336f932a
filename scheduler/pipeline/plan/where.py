"""On which chain a job is looked at: the one that its owner names, or the policy's own choice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from scheduler.errors import InvalidValueError, SchedulerError
from scheduler.evaluate import evaluate
from scheduler.job import JobSpec
from scheduler.network import Residual
from scheduler.placement import Cut, Placement, Segment
from scheduler.plan import Hold, Reject, Start
from scheduler.policies import PolicyConfig, decide
from scheduler.reasons import Reason
from scheduler.snapshot import Snapshot, WaitingJob

FORM = "regions with their stages in pipeline order, like us-east-1:3,eu-west-1:2 or us-east-1/H100:3"
_PART = re.compile(r"([a-z0-9][a-z0-9._-]*)(?:/([A-Za-z0-9][A-Za-z0-9._-]*))?:([1-9][0-9]{0,3})")


class NoPlacementError(SchedulerError):
    """The policy has no place for the job, not even with nothing else running; `reasons` says why."""

    code = "no_placement"

    def __init__(self, reasons: Sequence[Reason]) -> None:
        told = "; ".join(f"{reason.code.value}: {reason.detail}" for reason in reasons)
        super().__init__(f"no region or chain of regions can hold this job: {told}")
        self.reasons = tuple(reasons)


@dataclass(frozen=True, slots=True)
class Stand:
    """A placement, what is free beside it, and why it is this one."""

    placement: Placement
    residual: Residual
    why: str


def named(text: str, spec: JobSpec, snapshot: Snapshot) -> Stand:
    """The chain that a text of `FORM` names, whoever holds its GPUs now. Each cut has what is free of its link now;
    where a region has two, they share its uplink and downlink.

    Raises InvalidValueError for a text that names none, or none of this cluster.
    """
    parts = [_PART.fullmatch(part) for part in re.split(r"[,>]", text.replace(" ", ""))]
    if not all(parts):
        raise InvalidValueError("placement", text, FORM)
    segments = tuple(_segment(part[1], part[2], int(part[3]), spec, snapshot) for part in parts if part)
    regions = [segment.region for segment in segments]
    crossings = [(a, b) for a, b in pairwise(regions) if a != b]
    twice = [region for region, count in Counter(b for _, b in crossings).items() if count > 1]
    if twice or (crossings and crossings[0][0] in {b for _, b in crossings}):
        raise InvalidValueError("placement", text, "every region once: a chain does not come back")
    residual = Residual.of(snapshot)
    cuts = tuple(_cut(crossing, crossings, residual) for crossing in crossings)
    placement = evaluate(spec, snapshot.cluster, segments, cuts).placement
    return Stand(placement, residual, "as it was named")


def chosen(spec: JobSpec, snapshot: Snapshot, config: PolicyConfig) -> Stand:
    """Where the policy would start the job now or, if it would have to wait, with nothing else running.

    Raises NoPlacementError where even then there is no place.
    """
    job = WaitingJob(spec, remaining_steps=spec.training.steps)
    reasons: tuple[Reason, ...] = ()
    for world, how in (
        (replace(snapshot, waiting=(job,)), "now"),
        (_emptied(snapshot, job), "with nothing else running: now it would have to wait"),
    ):
        verdict = next(each for each in decide(world, config).decisions if each.job_id == spec.job_id)
        if isinstance(verdict, Start):
            return Stand(
                verdict.placement, Residual.of(world), f"{config.name}'s choice {how}. {verdict.why}"
            )
        if isinstance(verdict, Hold | Reject):
            reasons = verdict.reasons
    raise NoPlacementError(reasons)


def _emptied(snapshot: Snapshot, job: WaitingJob) -> Snapshot:
    """The same cluster as if nobody held anything of it."""
    cluster = replace(snapshot.cluster, nodes=())
    return replace(snapshot, cluster=cluster, waiting=(job,), running=(), promised=())


def _segment(region: str, gpu_type: str | None, stages: int, spec: JobSpec, snapshot: Snapshot) -> Segment:
    cluster, size = snapshot.cluster, spec.parallelism.gpus_per_stage
    if region not in cluster.regions:
        known = ", ".join(sorted(cluster.regions)) or "none"
        raise InvalidValueError("placement", region, f"a region that there is: {known}")
    types = [pool.gpu_type for pool in cluster.pools_of(region)]
    if gpu_type is None and len(types) > 1:
        likes = " or ".join(f"{region}/{each}:{stages}" for each in types)
        raise InvalidValueError("placement", region, f"the type of GPU as well: {likes}")
    kind = types[0] if gpu_type is None and types else gpu_type
    if kind is None or kind not in types:
        raise InvalidValueError(
            "placement", f"{region}/{kind}" if kind else region, f"GPUs that are there: {', '.join(types)}"
        )
    most = cluster.pools[region, kind].gpus // size
    if stages > most:
        raise InvalidValueError(
            "placement", f"{region}:{stages}", f"at most {most} stages of {size} GPUs: {region} has no more"
        )
    return Segment(region, kind, stages, size)


def _cut(crossing: tuple[str, str], crossings: Sequence[tuple[str, str]], residual: Residual) -> Cut:
    a, b = crossing
    shares = Counter(end for each in crossings for end in each)
    free_bps = min(
        residual.own_pair_bps(a, b), residual.access_bps(a) / shares[a], residual.access_bps(b) / shares[b]
    )
    if not free_bps > 0:
        raise InvalidValueError("placement", f"{a} > {b}", "regions with a free link between them, both ways")
    return Cut(a, b, free_bps, residual.topology.pair_latency_s[a, b])
