"""A policy that changes running jobs is asked when something that matters has changed, and now and then; no more."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from scheduler.plan import Preempt
from service import links, nodes, prices
from service.db.engine import make_engine
from service.db.records import LinkRecord
from service.prices import Point, Subject
from tests.control_script import WIDE, Scripted, move_to, runs, start_at
from tests.control_world import ADMIN, START_S, FakeAgent, World

DEBOUNCE_S, INTERVAL_S = 15.0, 120.0


@pytest.fixture
async def played(script: Scripted) -> AsyncIterator[World]:
    """The policy is asked as the settings say."""
    engine = make_engine("sqlite://")
    world = World(engine, policy=script.name, replan_debounce_s=DEBOUNCE_S, replan_interval_s=INTERVAL_S)
    await world.start()
    yield world
    engine.dispose()


async def asked(world: World, script: Scripted) -> bool:
    """Whether one round asks the policy."""
    before = len(script.asked)
    await world.plan()
    return len(script.asked) > before


async def settled(world: World, script: Scripted, **changes: object) -> tuple[str, list[FakeAgent]]:
    """A job that runs, about which the policy has just been asked; now and here nothing changes any more."""
    agents = await world.cluster_of("eu-north", "eu-west", slots=2)
    job_id = await runs(world, script, agents, {"eu-north": 1}, **changes)
    world.clock.advance(INTERVAL_S)
    await world.plan()
    return job_id, agents


async def test_while_nothing_changes_it_is_asked_once_in_an_interval(played: World, script: Scripted) -> None:
    await settled(played, script)
    for _ in range(3):
        told = []
        for _ in range(12):
            played.clock.advance(10)
            told.append(await asked(played, script))
        assert told == [False] * 11 + [True]


async def test_it_is_asked_when_the_price_in_force_is_another(played: World, script: Scripted) -> None:
    await played.cluster_of("eu-north")
    await played.price("electricity", "eu-north", [(-60, 0.1), (10_000, 0.4), (10_100, 0.4)])
    agents = [FakeAgent(played, "eu-west", slots=2)]
    await agents[0].join()
    await runs(played, script, agents, {"eu-west": 1})
    played.clock.advance(START_S + 9_980 - played.clock.now())
    assert await asked(played, script)
    played.clock.advance(16)
    assert not await asked(played, script)
    played.clock.advance(16)
    assert await asked(played, script), "the hour has struck"
    assert script.asked[-1].electricity["eu-north"].at(played.clock.now()) == 0.4
    played.clock.advance(100)
    assert not await asked(played, script), "another point, the same price"


async def test_a_burst_of_new_prices_is_one_question(played: World, script: Scripted) -> None:
    await settled(played, script)
    played.clock.advance(DEBOUNCE_S)
    told = []
    for number in range(12):
        subject = Subject("electricity", "eu-north", None, None, None, "a burst")
        await prices.import_points(played.services, ADMIN, subject, [Point(1e6 * number, 0.1 * number)])
        told.append(await asked(played, script))
        played.clock.advance(1)
    assert told == [True] + [False] * 11, "the rest waits for the debounce to end"
    played.clock.advance(DEBOUNCE_S)
    assert await asked(played, script)
    played.clock.advance(DEBOUNCE_S)
    assert not await asked(played, script)


async def test_somebody_new_who_waits_is_looked_at_at_once(played: World, script: Scripted) -> None:
    await settled(played, script)
    await played.submit(**WIDE)
    assert await asked(played, script)
    assert not await asked(played, script), "nothing is new about it"
    await played.submit(**WIDE)
    assert await asked(played, script)


async def test_capacity_that_comes_or_goes_is_a_change(played: World, script: Scripted) -> None:
    await settled(played, script)
    played.clock.advance(DEBOUNCE_S)
    assert not await asked(played, script)
    await nodes.cordon(played.services, ADMIN, "node-eu-west", None)
    assert await asked(played, script)
    played.clock.advance(DEBOUNCE_S)
    await links.put(played.services, ADMIN, LinkRecord("eu-north", "eu-west", 5e9, 0.001, 1), None)
    assert await asked(played, script)


async def test_its_own_plan_is_no_news_to_it(played: World, script: Scripted) -> None:
    job_id, agents = await settled(played, script)
    await played.submit(**WIDE)
    script.once(move_to(job_id, {"eu-north": 2}))
    assert await asked(played, script)
    played.clock.advance(DEBOUNCE_S + 1)
    assert not await asked(played, script), "the world is as it made it"
    await played.until_stopped(agents)
    await played.plan()
    assert (await played.job(job_id)).generation == 2


async def test_a_preempted_job_is_looked_at_as_soon_as_it_waits(played: World, script: Scripted) -> None:
    job_id, agents = await settled(played, script)
    other = await played.submit(**WIDE)
    script.once(Preempt(job_id, "for the other"), start_at(other, {"eu-north": 2}))
    assert await asked(played, script)
    await played.until_stopped(agents)
    assert await asked(played, script)
    assert [job.spec.job_id for job in script.asked[-1].waiting] == [job_id]


async def test_with_jobs_that_may_not_be_changed_alone_it_is_never_asked(
    played: World, script: Scripted
) -> None:
    await settled(played, script, elasticity="none")
    for _ in range(5):
        played.clock.advance(INTERVAL_S)
        assert not await asked(played, script)


async def test_a_policy_that_does_not_replan_is_asked_at_every_round_while_somebody_waits(
    played: World, script: Scripted
) -> None:
    script.replans = False
    await played.lead("world")
    await played.cluster_of("eu-north", "eu-west", slots=2)
    assert not await asked(played, script)
    job_id = await played.submit(**WIDE)
    assert [await asked(played, script) for _ in range(3)] == [True] * 3
    script.once(start_at(job_id, {"eu-north": 1}))
    assert await asked(played, script)
    played.clock.advance(10 * INTERVAL_S)
    assert not await asked(played, script), "a job that runs is not its business"
