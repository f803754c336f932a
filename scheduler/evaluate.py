"""How long one iteration of a job takes on a placement: the truth of a replay, the prediction of everybody else.

A function of its arguments alone, memoised in bounded caches by what it depends on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

from scheduler.cluster import Cluster, GpuType
from scheduler.errors import InvalidValueError
from scheduler.job import JobSpec, Schedule
from scheduler.pipeline.choice import Choice, choose_full_window, choose_window, full_timeline
from scheduler.pipeline.plan.auto import SplitChain, fastest, fastest_window, generated, lagged_timeline
from scheduler.pipeline.plan.laid_out import MOST_ACTIONS, laid_out, layout_of, require_possible
from scheduler.pipeline.plan.layouts import line
from scheduler.pipeline.plan.order_run import Computations, run_computations
from scheduler.pipeline.plan.order_text import OrderText, read, written
from scheduler.pipeline.plan.placed import links_of, placed
from scheduler.pipeline.plan.stage_costs import split_chain
from scheduler.pipeline.schedules import fits, strict_window
from scheduler.pipeline.timeline import Chain, simulate
from scheduler.placement import Cut, Placement, Segment
from scheduler.profile import (
    StageProfile,
    Workload,
    in_flight_limit,
    in_flight_room,
    message_bytes_of,
    profiles_of,
    projector_bytes_of,
    stage_profiles_of,
)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a placement comes to.

    `iteration_s` = `timeline_s` (first forward to last backward) + the longest `sync_s` of a stage for each update, and
    with a codec the exchange of its projectors. Where updates come within an iteration the pipeline stays full from one
    to the next: then `timeline_s` is what an iteration takes in the long run.
    `busy_fraction` is the part of an iteration that each stage computes, `held` the most micro-batches that it holds,
    of two parts together; those between the parts of their backward count as their `pending_share`. `fits` tells
    whether every stage has the memory for that; a placement that does not fit must not be used. `placement` is
    complete: its window, or its order, is the one that was simulated, its schedule the job's; or strict 1F1B, where no
    window that slack 1F1B could have is faster and fits (`pipeline/choice.py`); or what `auto` came to
    (`pipeline/plan/auto.py`). Where that splits backwards, `whole` is the best that leaves them
    whole.
    """

    placement: Placement
    iteration_s: float
    timeline_s: float
    busy_fraction: tuple[float, ...]
    fits: bool
    stage_profiles: tuple[StageProfile, ...]
    held: tuple[float, ...]
    whole: Choice | None = field(default=None, compare=False)

    @property
    def peak_bytes(self) -> tuple[float, ...]:
        """What a GPU of each stage holds at most."""
        return tuple(
            profile.weight_bytes + held * profile.inflight_bytes
            for profile, held in zip(self.stage_profiles, self.held, strict=True)
        )


def evaluate(spec: JobSpec, cluster: Cluster, segments: Sequence[Segment], cuts: Sequence[Cut]) -> Evaluation:
    """One iteration of the job on these segments, with these cuts between their regions.

    Raises InvalidValueError if a GPU type is unknown, if there are more stages than layers or a number that the job's
    schedule cannot have, or if the cuts are not the crossings of the chain.
    """
    return _evaluate(
        Workload.of(spec), tuple(_gpu(cluster, each) for each in segments), tuple(segments), tuple(cuts)
    )


def as_planned(spec: JobSpec, cluster: Cluster, placement: Placement) -> Evaluation:
    """One iteration of the job on a placement in the window or order that it has, whichever would be the best there.

    `evaluate` answers the same for its own placements. Raises InvalidValueError as it does.
    """
    gpus = tuple(_gpu(cluster, each) for each in placement.segments)
    return _as_planned(Workload.of(spec), gpus, placement)


def split_chain_of(
    spec: JobSpec, cluster: Cluster, segments: Sequence[Segment], cuts: Sequence[Cut]
) -> SplitChain:
    """The chain that `evaluate` times where every stage is one part of the model, with its memory and the parts of its
    backwards. Raises as it does."""
    gpus = tuple(_gpu(cluster, each) for each in segments)
    return _split(Workload.of(spec), gpus, tuple(segments), tuple(cuts))


def in_its_order(spec: JobSpec, cluster: Cluster, placement: Placement) -> Evaluation:
    """One iteration on a placement that is to be used: in the window that it has, or in a generated order.

    Orders are generated for jobs that ask for one by name, and for those that ask for `auto` where that is faster. It
    takes milliseconds, so policies choose by windows. Raises InvalidValueError as `evaluate` does.
    """
    gpus = tuple(_gpu(cluster, each) for each in placement.segments)
    return _in_its_order(Workload.of(spec), gpus, placement)


@lru_cache(maxsize=16384)
def _evaluate(
    work: Workload, gpus: tuple[GpuType, ...], segments: tuple[Segment, ...], cuts: tuple[Cut, ...]
) -> Evaluation:
    stages = len(_under(gpus, segments))
    if work.schedule.parts > 1:
        require_possible(work.schedule, work.model.layers, stages, work.micro_batches)
        order = laid_out(work.schedule, stages, work.micro_batches)
        placement = Placement(segments, cuts, work.schedule, order.caps, order=order.text)
        return _of_order(work, gpus, placement, order.computations)
    if work.splits_backward:
        return _evaluate_auto(work, gpus, segments, cuts)
    if work.schedule is Schedule.ZB_H1:
        window = strict_window(stages, work.micro_batches)
        lag = tuple(window[0] - cap for cap in window)
        return _of_window(work, gpus, Placement(segments, cuts, work.schedule, window, lag))
    profiles, limits = _stages(work, gpus, segments)
    chain = _chain(profiles, segments, cuts, message_bytes_of(work))
    choose = choose_full_window if work.keeps_full else choose_window
    choice = choose(work.schedule, chain, work.micro_batches, limits)
    placement = Placement(segments, cuts, choice.schedule, choice.window)
    return _outcome(
        work, placement, profiles, choice.window, limits, choice.timeline.makespan_s, choice.timeline.busy_s
    )


def _evaluate_auto(
    work: Workload, gpus: tuple[GpuType, ...], segments: tuple[Segment, ...], cuts: tuple[Cut, ...]
) -> Evaluation:
    split = _split(work, gpus, segments, cuts)
    best = fastest_window(split, work.micro_batches)
    placement = Placement(segments, cuts, best.schedule, best.window, best.lag)
    profiles = profiles_of(work, _under(gpus, segments))
    held = _held(placement, profiles)
    timeline = best.whole.timeline
    if best.lag:
        timeline = lagged_timeline(split, best.window, best.lag, work.micro_batches)
    found = _outcome(work, placement, profiles, held, split.limits, timeline.makespan_s, timeline.busy_s)
    return replace(found, whole=best.whole) if best.lag else found


@lru_cache(maxsize=4096)
def _as_planned(work: Workload, gpus: tuple[GpuType, ...], placement: Placement) -> Evaluation:
    if placement.order:
        return _of_order(work, gpus, placement, _computations(placement.schedule, placement.order))
    return _of_window(work, gpus, placement)


@lru_cache(maxsize=512)
def _in_its_order(work: Workload, gpus: tuple[GpuType, ...], placement: Placement) -> Evaluation:
    planned = _as_planned(work, gpus, placement)
    micro_batches = work.micro_batches
    if not work.splits_backward or placement.order or placement.stages * micro_batches > MOST_ACTIONS:
        return planned
    split = _split(work, gpus, placement.segments, placement.cuts)
    choose = generated if work.schedule is Schedule.GENERATED else fastest
    found = choose(split, micro_batches)
    if found is None or found.rule is None:
        return planned
    text = written(found.order(split, micro_batches), line(placement.stages))
    arrays = _computations(found.schedule, text)
    ordered = replace(
        placement, schedule=found.schedule, window=arrays.caps(placement.stages), lag=(), order=text
    )
    return replace(_of_order(work, gpus, ordered, arrays), whole=found.whole)


def _of_window(work: Workload, gpus: tuple[GpuType, ...], placement: Placement) -> Evaluation:
    under = _under(gpus, placement.segments)
    profiles = profiles_of(work, under)
    rooms = _rooms(profiles, under)
    if placement.lag:
        split = _split(work, gpus, placement.segments, placement.cuts)
        timeline = lagged_timeline(split, placement.window, placement.lag, work.micro_batches)
    else:
        chain = _chain(profiles, placement.segments, placement.cuts, message_bytes_of(work))
        in_time = full_timeline if work.keeps_full else simulate
        timeline = in_time(chain, placement.window, work.micro_batches)
    return _outcome(
        work, placement, profiles, _held(placement, profiles), rooms, timeline.makespan_s, timeline.busy_s
    )


def _of_order(
    work: Workload, gpus: tuple[GpuType, ...], placement: Placement, computations: Computations
) -> Evaluation:
    under = _under(gpus, placement.segments)
    regions = [segment.region for segment in placement.segments for _ in range(segment.stages)]
    layout, links = layout_of(placement.schedule, placement.stages), links_of(placement.cuts)
    pipeline = placed(work, layout, under, regions, links, split=computations.splits)
    makespan_s = run_computations(pipeline, computations).makespan_s
    busy_s = [0.0] * placement.stages
    for stage in pipeline.stages:
        busy_s[stage.rank] += work.micro_batches * (stage.cost.forward_s + stage.cost.backward_s)
    profiles = stage_profiles_of(work, under)
    held = computations.most_held(placement.stages, profiles[0].pending_share)
    rooms = _rooms(profiles, under)
    return _outcome(work, placement, profiles, held, rooms, makespan_s, busy_s)


@lru_cache(maxsize=256)
def _computations(schedule: Schedule, text: OrderText) -> Computations:
    return Computations.of(read(text, layout_of(schedule, len(text))))


def _split(
    work: Workload, gpus: tuple[GpuType, ...], segments: tuple[Segment, ...], cuts: tuple[Cut, ...]
) -> SplitChain:
    under = _under(gpus, segments)
    return split_chain(work, under, _chain(profiles_of(work, under), segments, cuts, message_bytes_of(work)))


def _stages(
    work: Workload, gpus: Sequence[GpuType], segments: Sequence[Segment]
) -> tuple[tuple[StageProfile, ...], list[int]]:
    """The stages in pipeline order, and how many micro-batches each can hold."""
    under = _under(gpus, segments)
    profiles = profiles_of(work, under)
    return profiles, [in_flight_limit(profile, gpu) for profile, gpu in zip(profiles, under, strict=True)]


def _rooms(profiles: Sequence[StageProfile], under: Sequence[GpuType]) -> list[float]:
    return [in_flight_room(profile, gpu) for profile, gpu in zip(profiles, under, strict=True)]


def _under(gpus: Sequence[GpuType], segments: Sequence[Segment]) -> tuple[GpuType, ...]:
    """The GPU type under each stage."""
    return tuple(gpu for gpu, segment in zip(gpus, segments, strict=True) for _ in range(segment.stages))


def _outcome(
    work: Workload,
    placement: Placement,
    profiles: tuple[StageProfile, ...],
    held: tuple[float, ...],
    rooms: Sequence[float],
    timeline_s: float,
    busy_s: Sequence[float],
) -> Evaluation:
    updates_s = work.updates * max(profile.sync_s for profile in profiles)
    iteration_s = timeline_s + updates_s + _projector_s(work, placement.cuts)
    return Evaluation(
        placement=placement,
        iteration_s=iteration_s,
        timeline_s=timeline_s,
        # The two are summed in different orders: a stage that never waits may come out a rounding above 1.
        busy_fraction=tuple(min(1.0, each_s / iteration_s) for each_s in busy_s),
        fits=fits(held, rooms),
        stage_profiles=profiles,
        held=held,
    )


def _projector_s(work: Workload, cuts: Sequence[Cut]) -> float:
    """What a codec adds to the end of an iteration: over every cut the gradient of its projector goes back, and the
    new projector comes."""
    bits = projector_bytes_of(work) * 8
    return max((2 * (cut.latency_s + bits / cut.bandwidth_bps) for cut in cuts), default=0.0) if bits else 0.0


def _held(placement: Placement, profiles: Sequence[StageProfile]) -> tuple[float, ...]:
    """How many micro-batches each stage of a window holds at most."""
    if not placement.lag:
        return placement.window
    each = zip(placement.window, placement.lag, profiles, strict=True)
    return tuple(cap + behind * profile.pending_share for cap, behind, profile in each)


def _gpu(cluster: Cluster, segment: Segment) -> GpuType:
    found = cluster.gpu_types.get(segment.gpu_type)
    if found is None:
        known = ", ".join(sorted(cluster.gpu_types))
        raise InvalidValueError("segment.gpu_type", segment.gpu_type, f"a GPU type of the cluster: {known}")
    return found


def _chain(
    profiles: Sequence[StageProfile],
    segments: Sequence[Segment],
    cuts: Sequence[Cut],
    message_bytes: float,
) -> Chain:
    """The pipeline in seconds. Inside a region a boundary costs nothing: its network is not what binds."""
    latency_s = [0.0] * (len(profiles) - 1)
    transfer_s = [0.0] * (len(profiles) - 1)
    crossings = iter(cuts)
    end = 0
    for segment, following in pairwise(segments):
        end += segment.stages
        cut = next(crossings, None) if segment.region != following.region else None
        if cut is not None:
            latency_s[end - 1] = cut.latency_s
            transfer_s[end - 1] = message_bytes * 8 / cut.bandwidth_bps
    return Chain(
        tuple(profile.forward_s for profile in profiles),
        tuple(profile.backward_s for profile in profiles),
        tuple(latency_s),
        tuple(transfer_s),
    )
