"""What must hold for every policy on every small world, found by trying many."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.check import check_plan
from scheduler.cluster import Cluster, Link, Pool, Region
from scheduler.explain import explain
from scheduler.job import PlacementRule, Schedule
from scheduler.network import Residual
from scheduler.options import stage_counts
from scheduler.plan import Hold, Reject, Start
from scheduler.policies import POLICIES, PolicyConfig, decide
from scheduler.price import PriceSeries
from scheduler.snapshot import RunningJob, Snapshot, WaitingJob
from tests.worlds import BIG, GPU, SLOW, both_ways, cluster, job, region, runs, snapshot

NAMES = ("a", "b", "c", "d")


@st.composite
def clusters(draw, types=(GPU, BIG, SLOW), most_gpus=5):
    """Up to four regions with pools, links in some directions, and uplinks that sometimes bind."""
    names = NAMES[: draw(st.integers(1, 4))]
    kinds = types[: draw(st.integers(1, len(types)))]
    width = st.one_of(st.just(float("inf")), st.floats(1.0, 40.0))
    regions = {
        name: Region(name, draw(st.sampled_from([1.0, 1.2, 1.5])), draw(width), draw(width)) for name in names
    }
    pools = {
        (name, kind.name): Pool(name, kind.name, draw(st.integers(0, most_gpus)))
        for name in names
        for kind in kinds
        if kind is GPU or draw(st.booleans())
    }
    links = {
        (a, b): Link(a, b, draw(st.floats(0.0, 30.0)), draw(st.sampled_from([0.0, 0.01, 1.0])))
        for a, b in itertools.permutations(names, 2)
        if draw(st.integers(0, 4))
    }
    return Cluster({kind.name: kind for kind in kinds}, regions, pools, links)


@st.composite
def jobs(draw, job_id: str = "j"):
    """A job of up to eight layers, with bounds, rules and memory that sometimes bind."""
    layers = draw(st.integers(1, 8))
    least = draw(st.one_of(st.none(), st.integers(1, layers)))
    most = draw(st.one_of(st.none(), st.integers(least or 1, layers)))
    rule = PlacementRule(
        regions=draw(st.sampled_from([(), (), ("[a-c]",), ("a", "d")])),
        exclude=draw(st.sampled_from([(), (), (), ("b",)])),
        max_regions=draw(st.sampled_from([None, None, 1, 2, 3])),
    )
    return job(
        job_id,
        layers=layers,
        seconds={
            "g": draw(st.floats(1.0, 20.0)),
            "big": draw(st.floats(1.0, 20.0)),
            "slow": draw(st.floats(20.0, 40.0)),
        },
        activation_bits=draw(st.floats(0.5, 40.0)),
        weight_bytes=draw(st.sampled_from([8.0, 200.0, 400.0])),
        inflight_bytes=draw(st.sampled_from([0.0, 30.0, 90.0])),
        micro_batches=draw(st.integers(1, 6)),
        steps=draw(st.integers(1, 100)),
        stages=(least, most),
        named=draw(st.one_of(st.none(), st.integers(1, 8))),
        tensor=draw(st.integers(1, 2)),
        placement=rule,
        priority=draw(st.sampled_from([10, 50, 50, 90])),
        submit_s=draw(st.sampled_from([0.0, 1.0, 2.0])),
        schedule=draw(st.sampled_from(Schedule)),
        avoid=draw(st.sampled_from([(), (), ("a",)])),
        require=draw(st.sampled_from([(), (), ("a", "b")])),
    )


@st.composite
def snapshots(draw):
    """A cluster with some jobs running where `bace` put them, and some waiting."""
    world = draw(clusters())
    prices = {
        name: PriceSeries.flat(draw(st.sampled_from([-0.1, 0.0, 0.1, 0.2]))).known(0.0)
        for name in world.regions
        if draw(st.integers(0, 3))
    }
    early = [draw(jobs(f"r{number}")) for number in range(draw(st.integers(0, 2)))]
    started = decide(Snapshot(1, 0.0, world, prices, tuple(early)), PolicyConfig()).starts
    by_id = {each.spec.job_id: each for each in early}
    running = tuple(runs(by_id[start.job_id], start.placement) for start in started)
    waiting = tuple(draw(jobs(f"j{number}")) for number in range(draw(st.integers(1, 4))))
    return Snapshot(1, 0.0, world, prices, waiting, running)


@settings(max_examples=40, deadline=None)
@given(snapshots(), st.sampled_from(sorted(POLICIES)), st.booleans())
def test_no_policy_breaks_a_rule_and_everybody_who_waits_is_told_why(snap, name, strict):
    plan = decide(snap, PolicyConfig(name, strict=strict))
    assert check_plan(snap, plan) == ()
    held = [each for each in plan.decisions if isinstance(each, Hold)]
    assert [each.position for each in held] == list(range(1, len(held) + 1))
    for decision in plan.decisions:
        for reason in () if isinstance(decision, Start) else decision.reasons:
            assert reason.needed is None or reason.available is None or reason.available < reason.needed
    if strict and held:
        first = plan.decisions.index(held[0])
        assert not any(isinstance(each, Start) for each in plan.decisions[first:])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(2.0, 14.0), min_size=6, max_size=6),
    st.lists(st.floats(4.0, 14.0), min_size=4, max_size=4),
    st.sampled_from([(4, 4, 4), (7, 5)]),
    st.sampled_from(["bace", "cr-lcf", "cr-ldf"]),
)
def test_jobs_that_must_share_links_in_one_round_never_overbook_them(widths, access, sizes, name):
    """Regions of three GPUs and jobs of more stages: all cross, over the same few links and through one region."""
    pairs = itertools.combinations(NAMES, 2)
    links = both_ways(*((a, b, width) for (a, b), width in zip(pairs, widths, strict=True)))
    regions = [region(name, up=width) for name, width in zip(NAMES, access, strict=True)]
    world = cluster(dict.fromkeys(NAMES, 3), links, regions)
    waiting = [
        job(f"j{number}", stages=(size, size), activation_bits=7.9, submit_s=number)
        for number, size in enumerate(sizes)
    ]
    snap = snapshot(world, *waiting)
    assert check_plan(snap, decide(snap, PolicyConfig(name))) == ()


@settings(max_examples=30, deadline=None)
@given(snapshots(), st.sampled_from(sorted(POLICIES)), st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_the_order_of_anything(snap, name, shuffler):
    config = PolicyConfig(name)
    assert decide(_shuffled(snap, shuffler), config) == decide(snap, config)


def _shuffled(snap: Snapshot, rng: random.Random) -> Snapshot:
    def mixed(items):
        items = list(items)
        rng.shuffle(items)
        return items

    world = snap.cluster
    return replace(
        snap,
        cluster=Cluster(
            dict(mixed(world.gpu_types.items())),
            dict(mixed(world.regions.items())),
            dict(mixed(world.pools.items())),
            dict(mixed(world.links.items())),
        ),
        electricity=dict(mixed(snap.electricity.items())),
        waiting=tuple(mixed(snap.waiting)),
        running=tuple(mixed(snap.running)),
    )


@settings(max_examples=30, deadline=None)
@given(snapshots())
def test_giving_back_what_was_taken_restores_every_last_digit(snap):
    residual = Residual.of(snap)
    before = _everything(residual)
    starts = decide(snap, PolicyConfig("cr-lcf")).starts
    for start in starts:
        residual.take(start.placement)
    assert not starts or _everything(residual) != before
    for start in starts:
        residual.give_back(start.placement)
    assert _everything(residual) == before


def _everything(residual: Residual) -> list[float]:
    cluster = residual.topology.cluster
    return [
        *(residual.free_gpus(key) for key in sorted(cluster.pools)),
        *(residual.own_link_bps(key) for key in sorted(cluster.links)),
        *(residual.uplink_bps(name) for name in sorted(cluster.regions)),
        *(residual.downlink_bps(name) for name in sorted(cluster.regions)),
    ]


@settings(max_examples=100, deadline=None)
@given(clusters(types=(GPU,)), jobs(), st.data())
def test_bace_starts_a_job_if_and_only_if_some_chain_keeps_its_rule(world, waiting, data):
    """Against every ordered choice of regions: with one GPU type, growth and search together miss nothing."""
    other = data.draw(jobs("r"))
    started = decide(Snapshot(1, 0.0, world, {}, (other,)), PolicyConfig()).starts
    running: tuple[RunningJob, ...] = tuple(runs(other, each.placement) for each in started)
    snap = Snapshot(1, 0.0, world, {}, (waiting,), running)
    (decision,) = decide(snap, PolicyConfig()).decisions
    possible = _some_chain(snap, waiting)
    assert isinstance(decision, Start) == possible, decision
    if isinstance(decision, Reject):
        assert not _some_chain(replace(snap, running=()), replace(waiting, avoid_regions=frozenset()))


def _some_chain(snap: Snapshot, waiting: WaitingJob) -> bool:
    """Whether any ordered choice of regions holds the least number of stages with cuts that keep up."""
    counts = stage_counts(waiting.spec, (GPU,))
    if counts is None:
        return False
    residual, floor, need = Residual.of(snap), counts.floor, counts.need_bps[0]
    rule, size = waiting.spec.placement, waiting.spec.parallelism.gpus_per_stage
    slots = {
        name: residual.free_gpus((name, "g")) // size
        for name in snap.cluster.regions
        if (
            not rule.regions
            or name in {"a", "d"} & set(rule.regions)
            or (rule.regions == ("[a-c]",) and name in "abc")
        )
        and name not in rule.exclude
        and name not in waiting.avoid_regions
        and (not waiting.require_regions or name in waiting.require_regions)
    }
    for length in range(1, min(len(slots), rule.max_regions or len(slots)) + 1):
        for chain in itertools.permutations([name for name in slots if slots[name]], length):
            if sum(slots[name] for name in chain) >= floor and _keeps_up(residual, chain, need):
                return True
    return False


def _keeps_up(residual: Residual, chain: tuple[str, ...], need: int) -> bool:
    for position, name in enumerate(chain):
        cuts = (position > 0) + (position + 1 < len(chain))
        if cuts and min(residual.uplink_bps(name), residual.downlink_bps(name)) < cuts * need:
            return False
    return all(residual.own_pair_bps(a, b) >= need for a, b in itertools.pairwise(chain))


@settings(max_examples=40, deadline=None)
@given(snapshots())
def test_every_cut_of_bace_keeps_up_with_its_slowest_stage(snap):
    from scheduler.evaluate import as_planned
    from scheduler.profile import boundary_bytes

    specs = {each.spec.job_id: each.spec for each in snap.waiting}
    for start in decide(snap, PolicyConfig()).starts:
        spec, placement = specs[start.job_id], start.placement
        evaluation = as_planned(spec, snap.cluster, placement)
        assert evaluation.fits
        assert evaluation.iteration_s == start.predicted_iteration_s
        slowest_s = max(stage.pace_s for stage in evaluation.stage_profiles)
        for cut in placement.cuts:
            assert boundary_bytes(spec) * 8 / cut.bandwidth_bps <= slowest_s * (1 + 1e-12)


@settings(max_examples=25, deadline=None)
@given(snapshots(), st.sampled_from(sorted(POLICIES)))
def test_an_explanation_agrees_with_the_decision_and_its_named_ends_are_enough(snap, name):
    config = PolicyConfig(name)
    decisions = {each.job_id: each for each in decide(snap, config).decisions}
    for waiting in snap.waiting:
        told = explain(snap, config, waiting.spec.job_id)
        decision = decisions[waiting.spec.job_id]
        assert told.reasons == (() if isinstance(decision, Start) else decision.reasons)
        assert {each.region for each in told.regions} == set(snap.cluster.regions)
        if len(snap.waiting) == 1 and told.blocking_jobs:
            left = tuple(each for each in snap.running if each.spec.job_id not in told.blocking_jobs)
            (after,) = decide(replace(snap, running=left), config).decisions
            assert isinstance(after, Start)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_new_names_in_the_same_order_change_nothing_but_the_names(name):
    rng = random.Random(7)
    names = ["m", "n", "o", "p"]
    fresh = dict(zip(names, ["w", "x", "y", "z"], strict=True))

    def world(rename):
        rng.seed(7)
        regions = {rename(n): Region(rename(n), rng.uniform(1, 2)) for n in names}
        pools = {(rename(n), "g"): Pool(rename(n), "g", rng.randint(1, 4)) for n in names}
        links = {
            (rename(a), rename(b)): Link(rename(a), rename(b), rng.uniform(5, 20), 0.01)
            for a, b in itertools.permutations(names, 2)
        }
        prices = {rename(n): PriceSeries.flat(rng.uniform(0, 1)).known(0.0) for n in names}
        waiting = tuple(job(f"j{k}", steps=k + 1) for k in range(3))
        return Snapshot(1, 0.0, Cluster({"g": GPU}, regions, pools, links), prices, waiting)

    plain = decide(world(str), PolicyConfig(name)).starts
    renamed = decide(world(fresh.__getitem__), PolicyConfig(name)).starts
    assert [[fresh[r] for r in each.placement.regions] for each in plain] == [
        list(each.placement.regions) for each in renamed
    ]
