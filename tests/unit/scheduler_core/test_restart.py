"""What stopping and restarting takes, and what has to travel."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from scheduler.cluster import Cluster, RestartCosts
from scheduler.network import Residual
from scheduler.parameters import parameter_count
from scheduler.placement import Cut, Placement, Segment, Transfer
from scheduler.presets import model
from scheduler.restart import (
    granted_transfers,
    is_restarting,
    restart_s,
    state_after_stop,
    state_bytes,
    state_of,
    stop_s,
    time_to_stop_s,
    travelling_bytes,
)
from scheduler.snapshot import StateSpan
from tests.worlds import both_ways, cluster, job, region, runs

COSTS = RestartCosts(fixed_s=30.0, storage_bps_per_gpu=16.0)


def world(*, up: float = 100.0, down: float = 100.0, link: float = 40.0) -> Cluster:
    made = cluster(
        {"a": 8, "b": 8, "c": 8},
        both_ways(("a", "b", link), ("b", "c", link), ("a", "c", link)),
        [region(name, up=up, down=down) for name in "abc"],
    )
    return replace(made, restart=COSTS)


def chain(*stages: tuple[str, int], size: int = 1, bandwidth_bps: float = 8.0) -> Placement:
    segments = tuple(Segment(name, "g", count, size) for name, count in stages)
    cuts = tuple(
        Cut(a.region, b.region, bandwidth_bps, 0.01)
        for a, b in itertools.pairwise(segments)
        if a.region != b.region
    )
    total = sum(count for _, count in stages)
    return Placement(segments, cuts, job().spec.training.schedule, (1,) * total)


def test_a_checkpoint_holds_every_parameter_once_with_its_optimizer() -> None:
    spec = replace(job().spec, profile=None, model=model("llama-2-7b"))
    assert state_bytes(spec) == 18 * parameter_count(spec.model)
    assert state_bytes(replace(spec, parallelism=replace(spec.parallelism, data=4))) == state_bytes(spec)
    assert state_bytes(job(weight_bytes=96.0).spec) == 96.0  # measured


@pytest.mark.parametrize(("stages", "size", "layers"), [(4, 1, 2), (3, 1, 3), (4, 2, 2), (8, 1, 1)])
def test_the_largest_stage_sets_how_long_state_is_written(stages: int, size: int, layers: int) -> None:
    spec = job(layers=8, weight_bytes=64.0).spec
    placement = chain(("a", stages), size=size)
    assert stop_s(spec, world(), placement) == layers * 8 * 8 / (16.0 * size)
    assert restart_s(spec, world(), placement) == 30.0 + layers * 8 * 8 / (16.0 * size)


def test_all_state_travels_at_once_before_it_is_read() -> None:
    spec, placement = job(layers=8, weight_bytes=64.0).spec, chain(("a", 8))
    sent = (Transfer("b", "a", 10.0, 8.0), Transfer("c", "a", 10.0, 4.0))
    assert restart_s(spec, world(), placement, sent) == restart_s(spec, world(), placement) + 20.0


def test_state_lies_where_its_layers_stand() -> None:
    spec = job(layers=8).spec
    assert state_of(spec, chain(("a", 2), ("b", 1))) == (StateSpan("a", 5), StateSpan("b", 3))
    assert state_of(spec, chain(("a", 1), ("a", 1), ("b", 2))) == (StateSpan("a", 4), StateSpan("b", 4))


def test_what_changes_region_travels_and_nothing_else() -> None:
    spec = job(layers=8, weight_bytes=64.0).spec
    state = (StateSpan("a", 5), StateSpan("b", 3))
    assert travelling_bytes(spec, state, chain(("a", 1))) == {("b", "a"): 24.0}
    assert travelling_bytes(spec, state, chain(("b", 1), ("a", 1))) == {("a", "b"): 32.0, ("b", "a"): 24.0}
    assert travelling_bytes(spec, state, chain(("a", 2), ("b", 1))) == {}
    assert travelling_bytes(spec, (), chain(("a", 2))) == {}


def test_transfers_take_what_is_free_beside_the_cuts_and_share_an_uplink() -> None:
    spec = job(layers=8, weight_bytes=64.0).spec
    there = chain(("b", 1), ("c", 1))
    residual = Residual.empty(world(up=21.0))
    sent = granted_transfers(spec, (StateSpan("a", 8),), there, residual)
    assert sent == (Transfer("a", "b", 32.0, 10), Transfer("a", "c", 32.0, 10))
    assert residual.uplink_bps("a") == 21.0  # nothing has been taken
    (one,) = granted_transfers(spec, (StateSpan("b", 8),), there, residual) or ()
    assert one.bandwidth_bps == 21 - 8  # the cut from b to c is there already


def test_transfers_into_one_region_share_its_downlink() -> None:
    spec = job(layers=8).spec
    residual = Residual.empty(world(down=31.0))
    sent = granted_transfers(spec, (StateSpan("a", 4), StateSpan("b", 4)), chain(("c", 1)), residual)
    assert [each.bandwidth_bps for each in sent or ()] == [15, 15]


def test_state_that_cannot_reach_a_region_now_gives_no_transfers() -> None:
    spec, state = job(layers=8).spec, (StateSpan("a", 8),)
    residual = Residual.empty(world())
    residual.take(chain(("a", 1), ("b", 1), bandwidth_bps=39.5))
    assert granted_transfers(spec, state, chain(("b", 1)), residual) is None
    assert granted_transfers(spec, state, chain(("a", 1)), residual) == ()
    lonely = Residual.empty(cluster({"a": 1, "b": 1}))
    assert granted_transfers(spec, state, chain(("b", 1)), lonely) is None


def test_until_its_first_step_a_job_keeps_the_state_it_came_from() -> None:
    waiting = job(layers=8, weight_bytes=64.0)
    running = replace(runs(waiting, chain(("a", 4))), ready_s=50.0, state=(StateSpan("b", 8),))
    assert is_restarting(running, 49.0)
    assert state_after_stop(running, 49.0) == (StateSpan("b", 8),)
    assert time_to_stop_s(running, world(), 49.0) == 0.0
    for now_s, each in ((50.0, running), (0.0, replace(running, ready_s=None))):
        assert not is_restarting(each, now_s)
        assert state_after_stop(each, now_s) == (StateSpan("a", 8),)
        assert time_to_stop_s(each, world(), now_s) == stop_s(waiting.spec, world(), chain(("a", 4)))
