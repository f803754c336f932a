"""What the scheduler says of a case: the order of its stages, and how long an iteration takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from scheduler.job import Schedule
from scheduler.pipeline.iteration import long_run_s
from scheduler.pipeline.plan.generate import generate
from scheduler.pipeline.plan.ir import Link, Order, Pipeline, StageCost, Worker
from scheduler.pipeline.plan.laid_out import laid_out, layout_of
from scheduler.pipeline.plan.passes import place, plan_of
from scheduler.pipeline.plan.split_orders import zb_h1
from scheduler.pipeline.plan.timing import timeline
from scheduler.pipeline.schedules import Window, gpipe_window, slack_window, strict_window
from scheduler.pipeline.timeline import Chain, simulate
from tests.fidelity.cases import ELEMENT_BYTES, HIDDEN, TWO_A_RANK, Case

ORDERED = ("zb-h1", *TWO_A_RANK, "generated")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a case's parts are, as measured: seconds."""

    overhead_s: float
    """What a worker takes for a micro-batch beside the work it is told to do."""
    latency_s: float
    transfer_s: float
    """How long a message of the case occupies a link."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the workers are to do, and how long that takes."""

    iteration_s: float
    caps: tuple[int, ...]
    """Of each stage."""
    stage_ranks: tuple[int, ...]
    actions: tuple[tuple[str, ...], ...] | None
    """Of each rank, with their messages; None: the window of the caps."""


def predict(case: Case, measured: Measured) -> Prediction:
    """By `scheduler.pipeline.timeline` for windows, by that of plans for orders; sends are non-blocking.

    Where steps run one into the other, by what one adds in the long run.
    """
    if case.schedule in ORDERED:
        return _of_order(case, measured)
    chain = _chain(case, measured)
    window = _window(case, chain)
    iteration_s = (
        case.micro_batches * long_run_s(chain, window)
        if case.every
        else simulate(chain, window, case.micro_batches).makespan_s
    )
    return Prediction(iteration_s, window, tuple(range(case.stages)), None)


def _chain(case: Case, measured: Measured) -> Chain:
    crossing = [here != there for here, there in pairwise(case.region_of)]
    return Chain(
        case.forward_s,
        tuple(backward_s + measured.overhead_s for backward_s in case.backward_s),
        tuple(measured.latency_s * each for each in crossing),
        tuple(measured.transfer_s * each for each in crossing),
    )


def _window(case: Case, chain: Chain) -> Window:
    if case.schedule == "1f1b":
        return strict_window(case.stages, case.micro_batches)
    if case.schedule == "gpipe":
        return gpipe_window(case.stages, case.micro_batches)
    if case.schedule == "slack-1f1b":
        return slack_window(chain.delay_s, chain.pace_s, case.micro_batches)
    return tuple(map(int, case.schedule.split(",")))


def _of_order(case: Case, measured: Measured) -> Prediction:
    pipeline = _pipeline(case, measured)
    plan = plan_of(pipeline, _order(case, pipeline))
    return Prediction(
        timeline(plan).makespan_s,
        plan.caps,
        tuple(stage.rank for stage in pipeline.stages),
        tuple(tuple(map(str, actions)) for actions in plan.actions),
    )


def _order(case: Case, pipeline: Pipeline) -> Order:
    if case.schedule == "zb-h1":
        return zb_h1(case.ranks, case.micro_batches)
    if case.schedule in TWO_A_RANK:
        return laid_out(Schedule(case.schedule), case.ranks, case.micro_batches).order
    return generate(pipeline, case.micro_batches).order


def _pipeline(case: Case, measured: Measured) -> Pipeline:
    layout = layout_of(Schedule(case.schedule), case.ranks)
    ranks = [rank for chain in layout.chains for rank in chain]
    regions = case.regions
    bandwidth_bps = case.message_bytes * 8 / measured.transfer_s
    return place(
        layout,
        [_cost(case, measured, rank) for rank in ranks],
        [Worker(region) for region in case.region_of],
        [
            Link(here, there, measured.latency_s, bandwidth_bps)
            for here in regions
            for there in regions
            if here != there
        ],
        shape=(1, case.tokens, HIDDEN),
        element_bytes=ELEMENT_BYTES,
    )


def _cost(case: Case, measured: Measured, rank: int) -> StageCost:
    forward_s, input_s, weight_s = stage_seconds(case, rank)
    return StageCost(forward_s, input_s + measured.overhead_s, weight_s)


def stage_seconds(case: Case, rank: int) -> Sequence[float]:
    """Forward, gradient of the input and of the weights of each stage of a rank."""
    parts = case.stages // case.ranks
    backward_s = case.backward_s[rank] / parts
    return case.forward_s[rank] / parts, backward_s / 2, backward_s / 2
