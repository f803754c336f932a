"""Stages stand whole on few nodes, and no GPU carries two of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cluster import Node
from scheduler.errors import InvalidValueError
from scheduler.job import Schedule
from scheduler.packing import FreeSlots, StageSlots
from scheduler.placement import Placement, Segment


def node(node_id: str, free: int, region: str = "a", first: int = 0) -> Node:
    return Node(node_id, region, "g", tuple(range(first, first + free)))


def stages(count: int, gpus: int, region: str = "a") -> Placement:
    return Placement(
        (Segment(region, "g", count, gpus),), (), Schedule.ONE_F_ONE_B, tuple(range(count, 0, -1))
    )


def pack(nodes: list[Node], placement: Placement) -> tuple[StageSlots, ...]:
    return FreeSlots(nodes).take(placement)


def nodes_of(packed) -> list[set[str]]:
    return [{node_id for node_id, _ in each.slots} for each in packed]


def test_all_stages_go_to_the_smallest_node_that_holds_them_all():
    packed = pack([node("n1", 8), node("n2", 4), node("n3", 2)], stages(2, 2))
    assert nodes_of(packed) == [{"n2"}, {"n2"}]
    assert [each.stage for each in packed] == [0, 1]
    assert packed[0].slots == (("n2", 0), ("n2", 1))


def test_few_nodes_are_used_where_no_single_one_is_enough():
    packed = pack([node("n1", 2), node("n2", 8), node("n3", 3), node("n4", 2)], stages(5, 2))
    assert nodes_of(packed) == [{"n2"}] * 4 + [{"n1"}]


def test_a_stage_is_kept_whole_where_a_node_has_the_room():
    packed = pack([node("n1", 3), node("n2", 3), node("n3", 4)], stages(3, 3))
    assert all(len(each) == 1 for each in nodes_of(packed))


def test_a_stage_that_no_node_holds_is_spread_over_few():
    packed = pack([node("n1", 3), node("n2", 4), node("n3", 1), node("n4", 2)], stages(1, 6))
    assert nodes_of(packed) == [{"n2", "n4"}]


def test_segments_take_from_their_own_pools():
    placement = Placement(
        (Segment("a", "g", 1, 2), Segment("a", "h", 1, 2)), (), Schedule.ONE_F_ONE_B, (2, 1)
    )
    packed = pack([Node("n2", "a", "h", (5, 7)), node("n1", 2)], placement)
    assert packed[1].slots == (("n2", 5), ("n2", 7))


def test_too_little_room_is_an_error_that_names_the_pool():
    with pytest.raises(InvalidValueError, match=r"segment a/g.*3 free GPUs"):
        pack([node("n1", 3), node("n2", 8, region="b")], stages(2, 2))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=6), st.integers(1, 5), st.integers(1, 6), st.randoms()
)
def test_every_stage_gets_its_gpus_once_whatever_the_order_of_the_nodes(free, count, gpus, shuffler):
    nodes = [node(f"n{number}", each) for number, each in enumerate(free)]
    if sum(free) < count * gpus:
        with pytest.raises(InvalidValueError):
            pack(nodes, stages(count, gpus))
        return
    packed = pack(nodes, stages(count, gpus))
    slots = [slot for each in packed for slot in each.slots]
    assert len(slots) == len(set(slots)) == count * gpus
    assert set(slots) <= {(each.node_id, index) for each in nodes for index in each.free_gpus}
    whole = sum(each // gpus for each in free)
    assert sum(len(each) == 1 for each in nodes_of(packed)) >= min(count, whole)
    mixed = list(nodes)
    shuffler.shuffle(mixed)
    assert pack(mixed, stages(count, gpus)) == packed


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4))),
)
@settings(deadline=None)
def test_one_after_the_other_takes_what_each_would_take_of_what_is_left(frees, asked):
    nodes = [node(f"n{number}", free) for number, free in enumerate(frees)]
    free = FreeSlots(nodes)
    for count, gpus in asked:
        if count * gpus > sum(len(each.free_gpus) for each in nodes):
            continue
        packed = free.take(stages(count, gpus))
        assert packed == pack(nodes, stages(count, gpus))
        taken = {slot for stage in packed for slot in stage.slots}
        nodes = [
            Node(
                each.node_id,
                "a",
                "g",
                tuple(gpu for gpu in each.free_gpus if (each.node_id, gpu) not in taken),
            )
            for each in nodes
        ]
