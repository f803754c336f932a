"""Stage counts, bandwidth needs, K* and the regions a job may enter."""

import math

import pytest

from scheduler.job import PlacementRule
from scheduler.network import Topology
from scheduler.options import Demands, stage_counts, why_filtered
from tests.worlds import BIG, GPU, SLOW, both_ways, cluster, job, region


def demand(waiting, world, *, growth=1.0):
    return Demands(Topology.of(world)).of(waiting, growth=growth)


def most(waiting, world, *, growth=1.0) -> int:
    return demand(waiting, world, growth=growth).candidates[0].most


def test_only_the_smallest_count_of_each_pace_is_an_option():
    counts = stage_counts(job(layers=80, seconds=80.0).spec, (GPU,))
    assert counts is not None
    assert 40 in counts.counts
    assert not set(range(41, 80)) & set(counts.counts)
    assert counts.counts[-1] == 80
    assert list(counts.pace_s) == sorted(counts.pace_s, reverse=True)
    assert counts.index(79) == counts.index(40)


def test_a_cut_with_what_it_needs_keeps_up_and_with_one_bit_less_it_does_not():
    counts = stage_counts(job(activation_bits=1e6 + 0.3, seconds=7.0).spec, (GPU,))
    assert counts is not None
    for pace_s, need in zip(counts.pace_s, counts.need_bps, strict=True):
        assert (1e6 + 0.3) / need <= pace_s
        assert (1e6 + 0.3) / (need - 1) > pace_s


def test_the_least_count_is_what_fits_in_memory():
    # 300 bytes of weights over GPUs that hold 95; the first stage of K holds 300/K, and the head next to nothing.
    counts = stage_counts(job(weight_bytes=300).spec, (GPU,))
    assert counts is not None
    assert counts.floor == 4
    assert stage_counts(job(weight_bytes=300).spec, (BIG,)).floor == 1
    assert stage_counts(job(weight_bytes=1e9).spec, (GPU,)) is None


def test_the_bounds_of_the_job_bind():
    assert stage_counts(job(stages=(3, 5)).spec, (GPU,)).counts == (3, 4)
    assert stage_counts(job(stages=(5, 5)).spec, (GPU,)).counts == (5,)
    assert stage_counts(job(weight_bytes=300, stages=(1, 3)).spec, (GPU,)) is None


def test_several_types_together_go_at_the_pace_of_the_slowest_and_need_what_the_fastest_does():
    waiting = job(seconds={"g": 8.0, "slow": 16.0})
    together = stage_counts(waiting.spec, (GPU, SLOW))
    assert together.pace_s == stage_counts(waiting.spec, (SLOW,)).pace_s
    assert together.need_bps == stage_counts(waiting.spec, (GPU,)).need_bps


@pytest.mark.parametrize(
    ("gpus", "bandwidth", "expected"),
    [
        (100, 1e9, 8),  # the layers
        (5, 1e9, 4),  # two regions of five hold ten, but … see the slots below
        (100, 3.0, 3),  # ⌊t·b/A⌋ = 3: 8 bits a micro-batch, 8 s for the whole model
        (100, 0.5, 1),  # not even one stage keeps up: the least it can run with
    ],
)
def test_k_star_is_bounded_by_layers_best_link_and_slots(gpus, bandwidth, expected):
    world = cluster({"a": gpus, "b": 1 if gpus < 8 else gpus}, both_ways(("a", "b", bandwidth)))
    # 5 + 1 slots: the smallest count with the pace of 6 stages of 8 layers is 4.
    assert most(job(), world) == expected


def test_without_a_link_or_with_one_region_no_cut_bounds_k_star():
    assert most(job(), cluster({"a": 8, "b": 8})) == 8
    narrow = both_ways(("a", "b", 2.0))
    assert most(job(placement=PlacementRule(max_regions=1)), cluster({"a": 8, "b": 8}, narrow)) == 8


def test_the_uplink_bounds_the_best_link():
    world = cluster({"a": 8, "b": 8}, both_ways(("a", "b", 1e9)), [region("a", up=3.0), region("b")])
    assert most(job(), world) == 3


def test_slots_are_whole_stages():
    assert most(job(tensor=3), cluster({"a": 8, "b": 8}, both_ways(("a", "b", 1e9)))) == 4


def test_growth_caps_between_the_stages_the_job_names_and_k_star_but_not_below_the_least():
    world = cluster({"a": 8})
    assert most(job(named=3), world, growth=0.0) == 3
    assert most(job(named=3), world) == 8
    assert most(job(named=3, layers=840), world, growth=0.5) == 5
    assert most(job(named=8), cluster({"a": 4}), growth=0.5) == 4
    assert most(job(named=2, weight_bytes=300), world, growth=0.0) == 4


def test_rules_keep_regions_out_and_say_so():
    rule = PlacementRule(regions=("eu-*", "us-1"), exclude=("eu-9",))
    waiting = job(placement=rule, avoid=["eu-2"], require=["eu-1", "eu-2", "us-1"])
    world = cluster({"eu-1": 1, "eu-2": 1, "eu-3": 1, "eu-9": 1, "us-1": 1, "us-2": 1})
    asked = demand(waiting, world)
    assert asked.regions == ("eu-1", "us-1")
    told = dict(asked.filtered)
    assert "placement.regions" in told["us-2"]
    assert "placement.exclude names eu-9" in told["eu-9"]
    assert "checkpoint" in told["eu-3"]
    assert "cools down" in told["eu-2"]
    assert why_filtered(waiting, "us-1") is None


def test_globs_match_case_and_whole_names():
    waiting = job(placement=PlacementRule(regions=("eu-?",)))
    assert why_filtered(waiting, "eu-1") is None
    assert why_filtered(waiting, "eu-10") is not None
    assert why_filtered(waiting, "EU-1") is not None


def test_jobs_that_ask_for_the_same_share_one_demand():
    world = cluster({"a": 8})
    first, second = job("one", steps=5), job("two", steps=50)
    assert demand(first, world) is demand(second, world)
    assert demand(first, world) is not demand(job("three", named=2), world)
    assert demand(first, world).solo_iteration_s == pytest.approx((4 + 8 - 1) * 1.0, rel=1e-3)
    assert math.isclose(demand(first, world).rate_bps, 8.0)
