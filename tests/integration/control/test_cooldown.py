"""A job that a node failed is kept out of that region for a while, where it can run elsewhere."""

from __future__ import annotations

from tests.control_world import World


async def _fails(world: World, agents, cause: str | None = None) -> str:
    """A job that starts somewhere, and what becomes of it there; the region."""
    await world.plan()
    await world.until_running(agents)
    (running,) = (await world.snapshot()).running
    (region,) = running.allocation.placement.regions
    agent = next(each for each in agents if each.region == region)
    agent.exit(1, cause)
    await world.until_stopped(agents)
    world.clock.advance(60)
    return region


async def test_a_job_does_not_go_back_to_where_it_lost_its_supervisor_until_that_has_cooled_down(
    world: World,
) -> None:
    agents = await world.cluster_of("eu-north", "eu-west", slots=3)
    job_id = await world.submit(placement={"max_regions": 1})
    failed = await _fails(world, agents, "supervisor-lost")
    (waiting,) = (await world.snapshot()).waiting
    assert waiting.avoid_regions == {failed}
    await world.plan()
    await world.until_running(agents)
    (running,) = (await world.snapshot()).running
    assert failed not in running.allocation.placement.regions
    assert running.avoid_regions == {failed}
    world.clock.advance(900)
    (running,) = (await world.snapshot()).running
    assert running.avoid_regions == frozenset()
    assert (await world.allocation(job_id)).generation == 2


async def test_an_error_of_its_own_is_no_region_s(world: World) -> None:
    agents = await world.cluster_of("eu-north", "eu-west", slots=3)
    await world.submit(placement={"max_regions": 1})
    await _fails(world, agents)
    (waiting,) = (await world.snapshot()).waiting
    assert waiting.avoid_regions == frozenset()


async def test_a_region_that_it_cannot_do_without_does_not_cool_down_for_it(world: World) -> None:
    agents = await world.cluster_of("eu-north", slots=3)
    await world.submit()
    await _fails(world, agents, "supervisor-lost")
    (waiting,) = (await world.snapshot()).waiting
    assert waiting.avoid_regions == frozenset()
