"""Placements whose workers are told an order: time, memory, what crosses cuts, where state lies."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from scheduler import presets
from scheduler.cluster import Cluster, Region
from scheduler.errors import InvalidValueError
from scheduler.evaluate import as_planned, evaluate, in_its_order
from scheduler.job import Parallelism, Recompute, Schedule
from scheduler.options import stage_counts
from scheduler.pipeline.plan import layouts
from scheduler.pipeline.plan.ir import Link, StageCost, Worker
from scheduler.pipeline.plan.laid_out import laid_out, layout_of, messages_a_cut
from scheduler.pipeline.plan.memory import peak_bytes
from scheduler.pipeline.plan.order_text import read
from scheduler.pipeline.plan.passes import place, plan_of
from scheduler.pipeline.plan.timing import timeline
from scheduler.placement import Cut, Placement, Segment
from scheduler.profile import boundary_bytes, k_min, stage_profiles
from scheduler.restart import state_of
from scheduler.snapshot import StateSpan

A100 = presets.gpu("a100-80g")
CLUSTER = Cluster({"A100-80G": A100}, {name: Region(name) for name in ("a", "b", "c")}, {}, {})
SEGMENTS = (Segment("a", "A100-80G", 3, 1), Segment("b", "A100-80G", 1, 1))
CUTS = (Cut("a", "b", 5e9, 0.02),)
TWO_A_RANK = [each for each in Schedule if each.parts > 1]
SPLITTING = 0.06


def asks(make_spec, schedule, **changes):
    spec = make_spec("llama-2-7b", schedule=schedule, **{"micro_batches": 16, **changes})
    return replace(spec, training=replace(spec.training, splits_backward=True))


def plan_by_hand(spec, order, layout, segments=SEGMENTS, cuts=CUTS):
    """The checked plan of an order on the stages of a layout: what a stage costs is what it would cost in a line."""
    line = replace(spec, training=replace(spec.training, schedule=Schedule.ONE_F_ONE_B))
    (chain,) = layout.chains
    splits = any(action.op == "I" for actions in order for action in actions)
    costs = []
    for profile, share in zip(
        stage_profiles(line, (A100,) * len(chain)), _weight_share(line, len(chain)), strict=True
    ):
        weight_s = share * profile.backward_s
        more_s = SPLITTING * profile.backward_s if splits else 0.0
        held = profile.inflight_bytes
        costs.append(
            StageCost(
                profile.forward_s,
                profile.backward_s - weight_s + more_s,
                weight_s,
                profile.weight_bytes,
                0.0,
                held,
                held,
            )
        )
    regions = [each.region for each in segments for _ in range(each.stages)]
    links = [
        Link(*ends, cut.latency_s, cut.bandwidth_bps)
        for cut in cuts
        for ends in ((cut.src, cut.dst), (cut.dst, cut.src))
    ]
    message = 4096 * spec.model.hidden * 2
    workers = [Worker(region) for region in regions]
    return plan_of(place(layout, costs, workers, links, shape=(message,)), order)


def _weight_share(spec, stages):
    """Half of what the matrices of its layers are of a stage's FLOPs."""
    model = spec.model
    layers = model.layers // stages
    attention = 12 * model.hidden * model.seq_len * layers
    matrices = 6 * layers * (4 * model.hidden**2 + 3 * model.hidden * model.ffn)
    for stage in range(stages):
        head = 6 * model.vocab * model.hidden if stage == stages - 1 else 0
        yield matrices / (matrices + head + attention) / 2


@pytest.mark.parametrize("schedule", TWO_A_RANK)
def test_two_stages_a_rank_take_what_their_plan_takes(make_spec, schedule):
    spec = asks(make_spec, schedule)
    found = evaluate(spec, CLUSTER, SEGMENTS, CUTS)
    made = laid_out(schedule, 4, 16)
    plan = plan_by_hand(spec, made.order, made.layout)
    assert found.timeline_s == pytest.approx(timeline(plan).makespan_s, rel=1e-12)
    assert found.peak_bytes == pytest.approx(peak_bytes(plan), rel=1e-12)
    busy_s = [each * found.iteration_s for each in found.busy_fraction]
    assert busy_s == pytest.approx(timeline(plan).busy_s, rel=1e-9)
    assert found.placement.schedule is schedule
    assert found.placement.window == plan.caps
    assert read(found.placement.order, layout_of(schedule, 4)) == made.order
    assert as_planned(spec, CLUSTER, found.placement) == found
    assert in_its_order(spec, CLUSTER, found.placement) == found


@pytest.mark.parametrize("schedule", TWO_A_RANK)
def test_what_crosses_a_cut_is_counted_as_often_as_it_crosses(make_spec, schedule):
    (chain,) = layout_of(schedule, 4).chains
    there = Counter()
    for here, behind in pairwise(chain):
        ends = here >= 3, behind >= 3  # the cut is before the last rank
        if ends[0] != ends[1]:
            there[ends] += 1
            there[ends[::-1]] += 1  # the gradient
    assert set(there.values()) == {messages_a_cut(schedule)}
    once = boundary_bytes(asks(make_spec, Schedule.ONE_F_ONE_B))
    assert boundary_bytes(asks(make_spec, schedule)) == messages_a_cut(schedule) * once


def test_memory_that_its_order_does_not_keep_to_does_not_fit(make_spec):
    spec = asks(make_spec, Schedule.ZB_V)
    roomy = evaluate(spec, CLUSTER, SEGMENTS, CUTS)
    assert roomy.fits
    for fits, memory_bytes in ((True, 1.0001), (False, 0.9999)):
        exact = replace(A100, memory_bytes=max(roomy.peak_bytes) / 0.95 * memory_bytes)
        tight = replace(CLUSTER, gpu_types={"A100-80G": exact})
        assert evaluate(spec, tight, SEGMENTS, CUTS).fits is fits


def test_zb_h1_by_its_name_holds_as_much_on_every_stage(make_spec):
    found = evaluate(asks(make_spec, Schedule.ZB_H1), CLUSTER, SEGMENTS, CUTS)
    assert (found.placement.schedule, found.placement.window) == (Schedule.ZB_H1, (4, 3, 2, 1))
    assert found.placement.lag == (0, 1, 2, 3)
    assert found.held == (4, 4, 4, 4)
    strict = evaluate(asks(make_spec, Schedule.ONE_F_ONE_B), CLUSTER, SEGMENTS, CUTS)
    assert found.iteration_s < strict.iteration_s


@pytest.mark.parametrize("schedule", [Schedule.ZB_H1, Schedule.ZB_V])
def test_between_the_parts_of_a_backward_the_built_in_worker_holds_less(make_spec, schedule):
    spec = asks(make_spec, schedule)
    ours = replace(spec, training=replace(spec.training, builtin_layers=True))
    found, whole = (evaluate(each, CLUSTER, SEGMENTS, CUTS) for each in (ours, spec))
    share = found.stage_profiles[0].pending_share
    assert 0.6 < share < 0.7
    if schedule is Schedule.ZB_H1:
        assert found.held == pytest.approx([4, 3 + share, 2 + 2 * share, 1 + 3 * share])
    else:
        assert found.held == whole.held == (8, 8, 8, 8), "all of them in flight, at its first backward"
    for fits, memory_bytes in ((True, 1.0001), (False, 0.9999)):
        exact = replace(A100, memory_bytes=max(found.peak_bytes) / 0.95 * memory_bytes)
        tight = replace(CLUSTER, gpu_types={"A100-80G": exact})
        assert evaluate(ours, tight, SEGMENTS, CUTS).fits is fits


def test_who_keeps_to_no_order_may_hold_all_whole(make_spec):
    spec = asks(make_spec, Schedule.ZB_H1)
    ready_first = replace(spec, training=replace(spec.training, builtin_layers=True, ready_first=True))
    assert evaluate(ready_first, CLUSTER, SEGMENTS, CUTS).held == (4, 4, 4, 4)


def test_zb_h1_fits_with_the_stages_that_it_is_offered(make_spec):
    spec = asks(make_spec, Schedule.ZB_H1)
    ours = replace(spec, training=replace(spec.training, builtin_layers=True))
    least = set()
    for gigabytes in range(30, 81, 2):
        gpu = replace(A100, memory_bytes=gigabytes * 1e9)
        stages = k_min(ours, gpu)
        if stages is None:
            continue
        cluster = replace(CLUSTER, gpu_types={"A100-80G": gpu})
        assert evaluate(ours, cluster, (Segment("a", "A100-80G", stages, 1),), ()).fits, gigabytes
        least.add(stages)
    assert len(least) > 5


def test_only_stages_that_the_order_can_have_are_offered(make_spec):
    zb_v, interleaved = (
        asks(make_spec, Schedule.ZB_V, micro_batches=24),
        asks(make_spec, Schedule.INTERLEAVED),
    )
    assert stage_counts(zb_v, (A100,)).counts == (4, 8), (
        "32 layers in two a rank, 24 micro-batches for 12 at most"
    )
    assert stage_counts(interleaved, (A100,)).counts == (4, 8, 16)
    with pytest.raises(InvalidValueError, match="multiple of 6"):
        evaluate(zb_v, CLUSTER, (Segment("a", "A100-80G", 3, 1),), ())


def test_half_the_memory_holds_the_model_on_fewer_gpus(make_spec):
    """V-Half runs on 16 GPUs where strict 1F1B has no room."""
    spec = asks(make_spec, Schedule.V_HALF, micro_batch=5, micro_batches=32)
    assert k_min(spec, A100) == 16
    strict = replace(spec, training=replace(spec.training, schedule=Schedule.ONE_F_ONE_B))
    assert k_min(strict, A100) == 20


def tight(make_spec, schedule):
    """Eight stages over three regions whose memory holds hardly more than strict 1F1B."""
    spec = asks(make_spec, schedule, micro_batches=24)
    segments = tuple(
        Segment(region, "A100-80G", stages, 1) for region, stages in (("a", 3), ("b", 3), ("c", 2))
    )
    cuts = (Cut("a", "b", 2e9, 0.2), Cut("b", "c", 2e9, 0.2))
    line = replace(spec, training=replace(spec.training, schedule=Schedule.ONE_F_ONE_B))
    most = max(evaluate(line, CLUSTER, segments, cuts).peak_bytes)
    gpu = replace(A100, memory_bytes=1.12 * most / 0.95)
    return spec, replace(CLUSTER, gpu_types={"A100-80G": gpu}), segments, cuts


def test_auto_is_given_a_generated_order_where_that_is_faster(make_spec):
    spec, cluster, segments, cuts = tight(make_spec, Schedule.AUTO)
    window = evaluate(spec, cluster, segments, cuts)
    found = in_its_order(spec, cluster, window.placement)
    assert found.placement.schedule is Schedule.GENERATED
    assert found.timeline_s < window.timeline_s * 0.99
    assert found.fits
    assert max(found.peak_bytes) <= 0.95 * cluster.gpu_types["A100-80G"].memory_bytes
    assert as_planned(spec, cluster, found.placement) == found
    order = read(found.placement.order, layouts.line(8))
    plan = plan_by_hand(spec, order, layouts.line(8), segments, cuts)
    assert found.timeline_s == pytest.approx(timeline(plan).makespan_s, rel=1e-12)
    assert found.placement.window == plan.caps
    assert (found.placement.segments, found.placement.cuts) == (segments, cuts), (
        "where it stands stays as it is"
    )


def test_who_asks_for_a_generated_order_gets_one_and_nobody_else_does(make_spec):
    spec, cluster, segments, cuts = tight(make_spec, Schedule.GENERATED)
    placement = evaluate(spec, cluster, segments, cuts).placement
    assert in_its_order(spec, cluster, placement).placement.schedule is Schedule.GENERATED
    for schedule in (Schedule.ONE_F_ONE_B, Schedule.SLACK_1F1B, Schedule.ZB_H1):
        other = replace(spec, training=replace(spec.training, schedule=schedule))
        given = evaluate(other, cluster, segments, cuts)
        assert in_its_order(other, cluster, given.placement) == given
    untold = replace(spec, training=replace(spec.training, splits_backward=False, schedule=Schedule.AUTO))
    given = evaluate(untold, cluster, segments, cuts)
    assert in_its_order(untold, cluster, given.placement) == given


def test_what_full_recompute_leaves_whole_no_order_splits(make_spec):
    spec, cluster, segments, cuts = tight(make_spec, Schedule.AUTO)
    spec = replace(spec, training=replace(spec.training, recompute=Recompute.FULL))
    found = in_its_order(spec, cluster, evaluate(spec, cluster, segments, cuts).placement)
    assert not any(set(text) & set("IW") for text in found.placement.order)
    assert not found.placement.lag


def test_state_lies_where_both_parts_of_a_stage_stand(make_spec):
    chain = (Segment("a", "A100-80G", 1, 1), Segment("b", "A100-80G", 3, 1))
    cuts = (Cut("a", "b", 5e9, 0.02),)
    spans = {
        schedule: state_of(
            asks(make_spec, schedule), evaluate(asks(make_spec, schedule), CLUSTER, chain, cuts).placement
        )
        for schedule in (Schedule.ZB_V, Schedule.INTERLEAVED, Schedule.ONE_F_ONE_B)
    }
    a, b = (lambda layers, name=name: StateSpan(name, layers) for name in "ab")
    assert spans[Schedule.ZB_V] == (a(4), b(24), a(4))
    assert spans[Schedule.INTERLEAVED] == (a(4), b(12), a(4), b(12))
    assert spans[Schedule.ONE_F_ONE_B] == (a(8), b(24))


def test_a_placement_holds_an_order_for_all_its_stages_or_none():
    with pytest.raises(InvalidValueError, match=r"placement\.order"):
        Placement(SEGMENTS, CUTS, Schedule.ZB_V, (4,) * 8)
    with pytest.raises(InvalidValueError, match=r"placement\.window"):
        Placement(SEGMENTS, CUTS, Schedule.ZB_V, (4,) * 4, order=("FB",) * 4)
    with pytest.raises(InvalidValueError, match=r"placement\.order"):
        Placement(SEGMENTS, CUTS, Schedule.GENERATED, (4,) * 4, order=("FB",) * 3)


def test_a_job_bounded_to_stages_without_an_order_fits_nowhere(make_spec):
    spec = asks(make_spec, Schedule.INTERLEAVED)
    bounded = replace(spec, parallelism=Parallelism(stages_min=3, stages_max=3))
    assert stage_counts(bounded, (A100,)) is None
