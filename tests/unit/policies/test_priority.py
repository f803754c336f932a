"""Who comes first."""

import pytest

from scheduler.network import Topology
from scheduler.options import Demands
from scheduler.priority import by_arrival, by_dynamic_priority, by_user_priority, dynamic_priority
from tests.worlds import both_ways, cluster, job

WORLD = cluster({"a": 8, "b": 8}, both_ways(("a", "b", 1e9)))


def asking(*jobs):
    demands = Demands(Topology.of(WORLD))
    return [(each, demands.of(each)) for each in jobs]


def ids(ordered):
    return [each.spec.job_id for each, _ in ordered]


@pytest.mark.parametrize(
    ("intensity", "sensitivity", "congestion", "expected"),
    [(1, 1, 0.5, 0.0), (0, 1, 0, 1.0), (1, 0, 1, 1.0), (0.25, 0.5, 0.2, 0.8 * 0.75 + 0.2 * 0.5)],
)
def test_the_published_formula(intensity, sensitivity, congestion, expected):
    assert dynamic_priority(intensity, sensitivity, congestion) == pytest.approx(expected)


def test_on_free_links_short_jobs_go_first_and_on_full_ones_those_that_need_little_bandwidth():
    short = job("short", steps=10, activation_bits=800)
    modest = job("modest", steps=20, activation_bits=8)
    assert ids(by_dynamic_priority(asking(modest, short), 0.0)) == ["short", "modest"]
    assert ids(by_dynamic_priority(asking(modest, short), 1.0)) == ["modest", "short"]


def test_the_users_priority_comes_before_all_that():
    urgent, short = job("urgent", steps=99, priority=90), job("short", steps=1)
    assert ids(by_dynamic_priority(asking(short, urgent), 0.0)) == ["urgent", "short"]
    assert ids(by_user_priority(asking(short, urgent), 0.0)) == ["urgent", "short"]


def test_equals_go_by_arrival_then_by_id_and_fifo_knows_nothing_else():
    first, second, third = job("z", submit_s=1), job("b", submit_s=2), job("a", submit_s=2, priority=99)
    assert ids(by_arrival(asking(second, third, first), 0.0)) == ["z", "a", "b"]
    calm = asking(job("b", submit_s=2), job("z", submit_s=1), job("a", submit_s=2))
    for order in (by_arrival, by_user_priority, by_dynamic_priority):
        assert ids(order(calm, 0.0)) == ["z", "a", "b"]
    assert by_dynamic_priority([], 0.5) == []
