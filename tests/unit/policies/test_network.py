"""What is free is counted right, held in both directions, and given back to the last digit."""

import itertools
import math

import pytest

from scheduler.cluster import Cluster, Node
from scheduler.job import Schedule
from scheduler.network import Residual, Topology
from scheduler.placement import Cut, Placement, Segment
from tests.worlds import both_ways, cluster, job, region, runs, snapshot


def chain(*stages: tuple[str, int], bandwidth_bps: float = 3.0) -> Placement:
    segments = tuple(Segment(name, "g", count, 1) for name, count in stages)
    cuts = tuple(Cut(a[0], b[0], bandwidth_bps, 0.01) for a, b in itertools.pairwise(stages))
    total = sum(count for _, count in stages)
    return Placement(segments, cuts, Schedule.ONE_F_ONE_B, tuple(range(total, 0, -1)))


@pytest.fixture
def world() -> Cluster:
    return cluster(
        {"a": 4, "b": 4, "c": 4},
        both_ways(("a", "b", 10), ("b", "c", 10)),
        [region("a", up=8), region("b", up=20, down=12), region("c")],
    )


def test_a_cut_holds_its_bandwidth_in_both_directions_and_at_both_ends(world):
    residual = Residual.empty(world)
    residual.take(chain(("a", 2), ("b", 1)))
    assert residual.own_link_bps(("a", "b")) == residual.own_link_bps(("b", "a")) == 7
    assert (residual.uplink_bps("a"), residual.downlink_bps("a")) == (5, 5)
    assert (residual.uplink_bps("b"), residual.downlink_bps("b")) == (17, 9)
    assert residual.own_link_bps(("b", "c")) == 10
    assert residual.free_gpus(("a", "g")) == 2


def test_a_link_is_bounded_by_itself_and_by_the_uplink_and_downlink_of_its_ends(world):
    residual = Residual.empty(world)
    assert residual.link_bps(("a", "b")) == 8  # the uplink of a
    residual.take(chain(("b", 1), ("c", 1), bandwidth_bps=7))
    assert residual.link_bps(("a", "b")) == 5  # what is left of the downlink of b
    assert residual.pair_bps("a", "b") == 5
    assert residual.pair_bps("a", "c") == 0  # no link


def test_a_region_inside_a_chain_pays_for_both_of_its_cuts(world):
    residual = Residual.empty(world)
    residual.take(chain(("a", 1), ("b", 1), ("c", 1)))
    assert residual.uplink_bps("b") == 20 - 2 * 3
    assert residual.downlink_bps("b") == 12 - 2 * 3


def test_bandwidth_is_counted_in_whole_bits_grants_up_and_capacities_down():
    residual = Residual.empty(cluster({"a": 1, "b": 1}, both_ways(("a", "b", 9.9))))
    assert residual.own_link_bps(("a", "b")) == 9
    residual.take(chain(("a", 1), ("b", 1), bandwidth_bps=2.1))
    assert residual.own_link_bps(("a", "b")) == 6
    assert math.isinf(residual.uplink_bps("a"))


def test_what_runs_is_taken_and_a_vanished_pool_or_link_does_not_break_the_count(world):
    running = [runs(job("r"), chain(("a", 3), ("b", 2)))]
    assert Residual.of(snapshot(world, running=running)).free_gpus(("a", "g")) == 1
    smaller = cluster({"a": 4}, regions=[region("a", up=8)])
    residual = Residual.of(snapshot(smaller, running=running))
    assert residual.free_gpus(("a", "g")) == 1
    assert residual.free_gpus(("b", "g")) == 0
    assert residual.uplink_bps("a") == 5


def test_with_nodes_their_free_gpus_count_so_that_a_cordoned_nodes_job_is_not_counted_twice(world):
    nodes = (Node("n1", "a", "g", (0, 2, 3)), Node("n2", "a", "g", ()))
    with_nodes = Cluster(world.gpu_types, world.regions, world.pools, world.links, nodes)
    residual = Residual.of(snapshot(with_nodes, running=[runs(job("r"), chain(("a", 3), ("b", 2)))]))
    assert residual.free_gpus(("a", "g")) == 3
    assert residual.free_gpus(("b", "g")) == 0
    assert residual.own_link_bps(("a", "b")) == 7


def test_a_copy_is_independent_and_widened_gives_bandwidth_only(world):
    residual = Residual.empty(world)
    copy = residual.clone()
    copy.take(chain(("a", 2), ("b", 1)))
    assert residual.free_gpus(("a", "g")) == 4
    assert residual.own_link_bps(("a", "b")) == 10
    wider = copy.widened([Cut("a", "b", 3.0, 0.01)])
    assert wider.own_link_bps(("a", "b")) == 10
    assert wider.free_gpus(("a", "g")) == copy.free_gpus(("a", "g")) == 2


def test_congestion_is_the_part_of_all_bandwidth_that_is_taken(world):
    residual = Residual.empty(world)
    assert residual.congestion() == 0.0
    residual.take(chain(("a", 1), ("b", 1)))
    assert residual.congestion() == pytest.approx(2 * 3 / 40)
    assert Residual.empty(cluster({"a": 1})).congestion() == 0.0


def test_a_cluster_is_looked_at_once_and_its_pair_latency_is_half_the_round_trip(world):
    assert Topology.of(world) is Topology.of(world)
    assert Topology.of(world).pair_latency_s["a", "b"] == pytest.approx(0.01)
    assert Topology.of(world).neighbours["b"] == ("a", "c")
