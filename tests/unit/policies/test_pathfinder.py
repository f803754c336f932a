"""The chain grows best link first, keeps up with its stages, and is found where there is one."""

from collections.abc import Collection, Mapping

import pytest

from scheduler.allocator import Offer, Rate
from scheduler.chain_search import Site, search_chain
from scheduler.cluster import Cluster
from scheduler.network import Residual
from scheduler.options import stage_counts
from scheduler.pathfinder import Path, find_path
from tests.worlds import GPU, both_ways, cluster, job, region

COUNTS = stage_counts(job().spec, (GPU,))
"""1, 2, 3, 4 and 8 stages, with as many bits per second needed by a cut."""


def path(
    world: Cluster,
    *,
    floor: int = 1,
    cap: int = 8,
    max_regions: int = 9,
    rates: Mapping[str, float] = {},
    begins: Collection[str] | None = None,
):
    counts = stage_counts(job(stages=(floor, cap)).spec, (GPU,))
    offers = [Offer(key, pool.gpus, Rate(False, rates.get(key[0], 1.0))) for key, pool in world.pools.items()]
    begins = world.regions if begins is None else begins
    return find_path(
        counts, len(counts.counts) - 1, max_regions, offers, Residual.empty(world), begins, seed=0
    )


def test_a_region_that_holds_k_star_is_enough_and_the_cheapest_such_is_taken():
    world = cluster({"a": 9, "b": 8, "c": 3}, both_ways(("a", "b", 99), ("b", "c", 99)))
    assert path(world) == Path(("a",), 8)
    assert path(world, rates={"a": 2.0}) == Path(("b",), 8)


def test_the_best_link_enters_first():
    world = cluster({"a": 5, "b": 3, "c": 3}, both_ways(("a", "b", 20), ("a", "c", 30)))
    assert path(world) == Path(("a", "c"), 8)


def test_the_chain_grows_at_either_end():
    world = cluster({"a": 4, "b": 2, "c": 2}, both_ways(("a", "b", 20), ("a", "c", 30)))
    assert path(world).regions in {("b", "a", "c"), ("c", "a", "b")}


def test_a_link_enters_only_if_it_keeps_up_with_the_stages_the_chain_then_has():
    world = cluster({"a": 2, "b": 2}, both_ways(("a", "b", 3)))
    assert path(world) == Path(("a", "b"), 3)  # four stages would need 4 bit/s
    assert path(cluster({"a": 2, "b": 2}, both_ways(("a", "b", 2)))) == Path(("a",), 2)


def test_both_directions_must_keep_up():
    links = (*both_ways(("a", "b", 9))[:1], *both_ways(("a", "b", 2))[1:])
    assert path(cluster({"a": 2, "b": 2}, links)) == Path(("a",), 2)
    assert path(cluster({"a": 2, "b": 2}, links[:1])) == Path(("a",), 2)


def test_up_and_downlinks_bind_too_and_two_cuts_share_them():
    links = both_ways(("a", "b", 99), ("b", "c", 99))
    pools = {"a": 1, "b": 1, "c": 2}
    assert path(cluster(pools, links)).stages == 4
    assert path(cluster(pools, links, [region("a"), region("b", up=8), region("c")])).stages == 4
    # 4 bit/s for each of two cuts are 8: with 7 there are three stages, either way.
    assert path(cluster(pools, links, [region("a"), region("b", up=7), region("c")])).stages == 3
    assert path(cluster(pools, links, [region("a"), region("b", up=99, down=7), region("c")])).stages == 3


def test_regions_that_add_no_stage_are_left_out():
    # Six stages are as fast as four, so the third region adds nothing unless a fourth makes it eight.
    world = cluster({"a": 3, "b": 1, "c": 2}, both_ways(("a", "b", 99), ("b", "c", 50)))
    assert path(world) == Path(("a", "b"), 4)
    world = cluster(
        {"a": 3, "b": 1, "c": 2, "d": 2}, both_ways(("a", "b", 99), ("b", "c", 50), ("c", "d", 40))
    )
    assert path(world).stages == 8


def test_no_more_regions_than_allowed():
    world = cluster({"a": 3, "b": 3, "c": 3}, both_ways(("a", "b", 99), ("b", "c", 99), ("a", "c", 99)))
    assert path(world, max_regions=2) == Path(("a", "b"), 4)
    assert path(world, max_regions=1) == Path(("a",), 3)


def test_too_little_is_no_path():
    world = cluster({"a": 2, "b": 2}, both_ways(("a", "b", 99)))
    assert path(world, floor=5, cap=8) is None
    assert path(world, floor=4, cap=8) == Path(("a", "b"), 4)
    assert path(cluster({"a": 0})) is None


def test_where_the_best_links_lead_astray_the_exact_search_finds_the_chain():
    # From anywhere the wide links to p and q are taken first; only s–x–r holds seven stages.
    links = both_ways(("x", "p", 100), ("x", "q", 90), ("x", "r", 50), ("x", "s", 40))
    world = cluster({"p": 1, "q": 1, "x": 1, "r": 3, "s": 3}, links)
    found = path(world, floor=7)
    assert found is not None
    assert set(found.regions) == {"s", "x", "r"}
    assert found.regions[1] == "x"
    assert path(world, floor=8) is None


def test_the_search_keeps_regions_with_room_for_one_cut_at_the_ends():
    sites = {"a": Site(2, 1), "b": Site(2, 1), "c": Site(2, 2)}
    linked = {("a", "b"), ("a", "c"), ("b", "c")}
    chain = search_chain(sites, linked, sites, 6, 9, seed=0)
    assert chain is not None
    assert chain[1] == "c"
    assert search_chain({**sites, "c": Site(2, 1)}, linked, sites, 6, 9, seed=0) is None


def test_the_search_takes_as_few_regions_as_can_be():
    sites = {name: Site(slots, 2) for name, slots in {"a": 1, "b": 2, "c": 3, "d": 4}.items()}
    linked = {("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")}
    assert set(search_chain(sites, linked, sites, 7, 9, seed=0) or ()) == {"c", "d"}
    assert search_chain(sites, linked, sites, 10, 3, seed=0) is None
    assert len(search_chain(sites, linked, sites, 10, 4, seed=0) or ()) == 4


@pytest.mark.parametrize("shift", range(3))
def test_the_order_in_which_pools_are_offered_does_not_matter(shift):
    names = ["a", "b", "c", "d"]
    links = both_ways(("a", "b", 9), ("b", "c", 9), ("c", "d", 9), ("a", "d", 9))
    pools = dict.fromkeys(names[shift:] + names[:shift], 2)
    assert path(cluster(pools, links)) == path(cluster(dict.fromkeys(names, 2), links))


def test_the_chain_begins_where_it_may_and_grows_at_its_far_end_only():
    world = cluster({"a": 2, "b": 3, "c": 3}, both_ways(("a", "b", 99), ("b", "c", 50), ("c", "a", 20)))
    assert path(world, begins=("c",)) == Path(("c", "b", "a"), 8)
    line = cluster({"a": 2, "b": 3, "c": 3}, both_ways(("a", "b", 99), ("b", "c", 50)))
    assert path(line, begins=("b",)) == Path(("b", "a"), 4), "from its beginning it grows no further"
    assert path(world, begins=("a", "c")) == Path(("a", "b", "c"), 8)
    assert path(world, begins=("d",)) is None
    assert path(world, begins=()) is None


def test_the_search_lets_a_chain_begin_where_it_may_only():
    sites = {"a": Site(1, 2), "b": Site(2, 2), "c": Site(3, 2)}
    linked = {("a", "b"), ("b", "c")}
    assert search_chain(sites, linked, ("c",), 6, 9, seed=0) == ("c", "b", "a")
    assert search_chain(sites, linked, ("a",), 6, 9, seed=0) == ("a", "b", "c")
    assert search_chain(sites, linked, ("b",), 6, 9, seed=0) is None
    assert search_chain(sites, linked, ("b",), 5, 9, seed=0) == ("b", "c")
