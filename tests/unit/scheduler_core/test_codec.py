"""A codec divides what crosses between regions, brings links into reach, and costs what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import presets
from scheduler.check import check_plan
from scheduler.cluster import Cluster, Region
from scheduler.errors import InvalidValueError
from scheduler.evaluate import as_planned, evaluate
from scheduler.job import JobSpec, MeasuredProfile
from scheduler.pipeline.plan.ir import LowRank
from scheduler.pipeline.timeline import Chain, simulate
from scheduler.placement import Cut, Segment
from scheduler.plan import Hold, Reject, Start
from scheduler.policies import PolicyConfig, decide
from scheduler.profile import boundary_bytes, stage_profiles
from scheduler.snapshot import WaitingJob
from tests.worlds import both_ways, cluster, snapshot

A100 = presets.gpu("a100-80g")
CLUSTER = Cluster({"A100-80G": A100}, {name: Region(name) for name in ("a", "b")}, {}, {})
CUT = Cut("a", "b", 1e9, 0.02)


def coded(spec: JobSpec, rank: int) -> JobSpec:
    return replace(spec, parallelism=replace(spec.parallelism, codec=LowRank(rank)))


def test_a_boundary_carries_the_rank_the_ids_and_its_part_of_the_projector(make_spec):
    spec = make_spec("llama-2-7b", micro_batch=2, micro_batches=16, data=3, tensor=4)

    message = 3 * 2 * 4096 * (64 * 2 + 4)
    projector = 3 * 4096 * 64 * 4

    assert boundary_bytes(coded(spec, 64)) == pytest.approx(message + projector / 16)
    assert boundary_bytes(coded(spec, 64)) / boundary_bytes(spec) == pytest.approx(64 / 4096, rel=0.1)


def test_measured_activations_are_divided_alike(make_spec):
    profile = MeasuredProfile({"A100-80G": 0.9}, {"A100-80G": 2.1}, 8e6, 320e9, 64e9)
    spec = coded(make_spec("llama-2-7b", profile=profile), 512)

    assert boundary_bytes(spec) == pytest.approx(1e6 + 4096 * 4 + 4096 * 512 * 4 / 16)


def test_a_cut_takes_the_coded_bytes_and_the_exchange_of_its_projector_ends_the_iteration(make_spec):
    plain = make_spec("llama-2-13b", micro_batches=32)
    spec = coded(plain, 128)
    parts = (Segment("a", "A100-80G", 4, 1), Segment("b", "A100-80G", 4, 1))

    found = evaluate(spec, CLUSTER, parts, (CUT,))

    transfer_s = 4096 * (128 * 2 + 4) * 8 / 1e9
    chain = Chain(
        tuple(profile.forward_s for profile in found.stage_profiles),
        tuple(profile.backward_s for profile in found.stage_profiles),
        (0.0, 0.0, 0.0, 0.02, 0.0, 0.0, 0.0),
        (0.0, 0.0, 0.0, transfer_s, 0.0, 0.0, 0.0),
    )
    assert found.timeline_s == simulate(chain, found.placement.window, 32).makespan_s
    exchange_s = 2 * (0.02 + 5120 * 128 * 4 * 8 / 1e9)
    sync_s = max(profile.sync_s for profile in found.stage_profiles)
    assert found.iteration_s == pytest.approx(found.timeline_s + sync_s + exchange_s)
    assert as_planned(spec, CLUSTER, found.placement).iteration_s == found.iteration_s
    assert found.timeline_s < evaluate(plain, CLUSTER, parts, (CUT,)).timeline_s


def test_in_one_region_a_codec_changes_no_time(make_spec):
    spec = make_spec("llama-2-7b")
    parts = (Segment("a", "A100-80G", 8, 1),)

    assert (
        evaluate(coded(spec, 64), CLUSTER, parts, ()).iteration_s
        == evaluate(spec, CLUSTER, parts, ()).iteration_s
    )


def test_the_ends_of_boundaries_take_memory(make_spec):
    spec = make_spec("llama-2-7b")
    end = 18 * 64 * (32_000 + 4096)

    more = [
        with_codec.weight_bytes - without.weight_bytes
        for with_codec, without in zip(
            stage_profiles(coded(spec, 64), (A100,) * 4), stage_profiles(spec, (A100,) * 4), strict=True
        )
    ]

    assert more == pytest.approx([end, 2 * end, 2 * end, end])
    assert stage_profiles(coded(spec, 64), (A100,)) == stage_profiles(spec, (A100,))


@pytest.mark.parametrize("rank", [0, 4097])
def test_a_rank_beyond_the_width_of_the_model_is_refused(make_spec, rank: int):
    with pytest.raises(InvalidValueError, match=r"codec\.rank"):
        coded(make_spec("llama-2-7b"), rank)


@pytest.mark.parametrize("policy", ["bace", "horizon"])
def test_a_link_comes_into_reach_that_was_not(make_spec, policy: str):
    """The model fits in no region alone, and its activations need 0.6 Gbps: the link has 0.1."""
    spec = make_spec("llama-2-7b")
    world = cluster({"a": 2, "b": 2}, both_ways(("a", "b", 1e8)), gpus=(A100,))
    config = PolicyConfig(policy)

    (without,) = decide(snapshot(world, WaitingJob(spec, 10)), config).decisions
    now = snapshot(world, WaitingJob(coded(spec, 64), 10))
    plan = decide(now, config)

    assert isinstance(without, Hold | Reject)
    (started,) = plan.decisions
    assert isinstance(started, Start)
    assert check_plan(now, plan) == ()
    (cut,) = started.placement.cuts
    slowest_s = max(profile.pace_s for profile in stage_profiles(spec, (A100,) * started.placement.stages))
    assert boundary_bytes(coded(spec, 64)) * 8 / slowest_s <= cut.bandwidth_bps <= 1e8
