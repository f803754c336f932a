"""Links are measured on a budget, never during a critical transfer, and planning goes by what was measured."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from agents.protocol import LINK_TESTS, LinkTest, LinkTestReport
from service import links
from service.control.link_tests import Due, measure_links
from service.control.observe import Observer
from service.db.engine import make_engine
from service.db.records import LinkRecord, LinkTestRecord
from service.db.repositories import allocations, leader, link_tests
from service.links import LinkView
from service.settings import LinkMeasuring, Settings
from tests.control_world import ADMIN, FakeAgent, World

DAY_S = 86_400.0
MB = 1_000_000
BANDWIDTH: dict[str, Any] = {
    "link_measuring": "bandwidth",
    "link_bandwidth_interval_s": 3600.0,
    "link_latency_interval_s": 600.0,
    "link_test_bytes": 100 * MB,
    "link_bytes_per_day": 1000 * MB,
}


class Site:
    """Two or more regions whose agents can measure."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.agents: dict[str, FakeAgent] = {}

    async def join(self, *regions: str, bps: float = 10e9, latency_s: float = 0.01) -> None:
        for number, region in enumerate(regions):
            agent = FakeAgent(
                self.world,
                region,
                slots=2,
                address=f"10.0.{number}.1",
                abilities=frozenset({LINK_TESTS}),
            )
            self.agents[region] = agent
            await agent.join()
            await agent.beat()
        await self.world.link(*regions, bps=bps, latency_s=latency_s)

    async def look(self) -> Due:
        return await measure_links(self.world.services, self.world.leadership)

    async def beats(self) -> None:
        await self.world.beats(self.agents.values())

    async def running(self) -> list[LinkTestRecord]:
        return await self.world.run(link_tests.running)

    async def asked(self) -> LinkTestRecord:
        """The one measurement that is asked for now."""
        await self.look()
        [test] = await self.running()
        return test

    async def measure(self, **found: Any) -> LinkTestRecord:
        """One whole measurement of whatever is due, with this result."""
        await self.look()
        [test] = await self.running()
        near, far = self.at(test.from_agent), self.at(test.to_agent)
        far.measured = [LinkTestReport(test_id=test.test_id, state="listening")]
        await far.beat()
        await near.beat()
        assert [told.role for told in near.link_tests] == ["connect"]
        if test.kind == "latency":
            found = {"latency_s": found["latency_s"]}
        near.measured = [LinkTestReport(test_id=test.test_id, state="done", **found)]
        await near.beat()
        return test

    async def measure_all(self, times: int = 1, after_s: float = 0.0, **found: Any) -> None:
        """Both directions between two regions, so many times."""
        for _ in range(times):
            self.world.clock.advance(after_s)
            await self.beats()
            for _ in range(2):
                await self.measure(**found)

    def at(self, agent_id: str) -> FakeAgent:
        return next(agent for agent in self.agents.values() if agent.agent_id == agent_id)

    async def view(self, src: str = "eu", dst: str = "us") -> LinkView:
        found = await links.list_all(self.world.services)
        return next(view for view in found if (view.link.src, view.link.dst) == (src, dst))

    async def planned(self, src: str = "eu", dst: str = "us") -> tuple[float, float]:
        """Capacity and latency that a decision would go by."""
        link = (await self.world.snapshot()).cluster.links[src, dst]
        return link.capacity_bps, link.latency_s

    async def version(self) -> int:
        return (await self.world.run(leader.get)).snapshot_version


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """With the settings of the test's parameter, if it has one."""
    engine = make_engine("sqlite://")
    made = World(engine, **getattr(request, "param", {}))
    await made.start()
    yield made
    engine.dispose()


@pytest.fixture
async def site(world: World) -> Site:
    made = Site(world)
    await made.join("eu", "us")
    return made


bandwidth = pytest.mark.parametrize("world", [BANDWIDTH], indirect=True)


async def test_latency_is_measured_by_an_agent_at_each_end_and_gone_by_in_both_directions(site: Site) -> None:
    test = await site.measure(latency_s=0.04)
    assert (test.kind, test.max_bytes) == ("latency", 0)
    assert await site.planned("eu", "us") == (10e9, 0.04)
    assert await site.planned("us", "eu") == (10e9, 0.04), "a round trip tells of both"
    assert (await site.look()).is_nothing, "nothing is due before the interval is over"


async def test_the_listener_is_told_first_and_the_prober_once_it_listens(site: Site) -> None:
    test = await site.asked()
    near, far = site.at(test.from_agent), site.at(test.to_agent)
    await site.beats()
    assert ([told.role for told in far.link_tests], near.link_tests) == (["listen"], [])
    [told] = far.link_tests
    assert (told.address, told.port) == (far.address, 29509), "an address and a port that it advertised"
    far.measured = [LinkTestReport(test_id=test.test_id, state="listening")]
    await far.beat()
    await near.beat()
    [asked] = near.link_tests
    assert (asked.role, asked.address, asked.token) == ("connect", far.address, told.token)


async def test_an_agent_that_does_not_say_that_it_can_is_asked_for_nothing(world: World) -> None:
    agents = await world.cluster_of("eu", "us")
    for number, agent in enumerate(agents):
        agent.address = f"10.0.{number}.1"
        await agent.join()
    await world.beats(agents)
    assert (await measure_links(world.services, world.leadership)).is_nothing


async def test_an_agent_that_was_downgraded_is_told_of_no_measurement(site: Site) -> None:
    test = await site.asked()
    far = site.at(test.to_agent)
    far.abilities = frozenset()
    reply = await far.send(far.heartbeat())
    assert reply.link_tests is None


async def test_agents_on_one_machine_have_no_link_between_them(world: World) -> None:
    site = Site(world)
    await site.join("eu", "us")
    for agent in site.agents.values():
        agent.address = "127.0.0.1"
        await agent.join()
    await site.beats()
    assert (await site.look()).is_nothing


@bandwidth
async def test_bandwidth_below_what_was_set_is_gone_by(site: Site) -> None:
    await site.measure_all(latency_s=0.01, bandwidth_bps=6e9, sent_bytes=100 * MB)
    assert await site.planned() == (6e9, 0.01)
    view = await site.view()
    assert (view.figures.capacity_from, view.capacity_why) == ("measured", "measured")
    assert view.free_bps == 6e9


@bandwidth
async def test_a_limit_is_never_exceeded_and_an_estimate_is(site: Site) -> None:
    await site.measure_all(latency_s=0.01, bandwidth_bps=15e9, sent_bytes=1)
    assert (await site.planned())[0] == 10e9
    await links.put(site.world.services, ADMIN, LinkRecord("eu", "us", 10e9, 0.01, 1, False), None)
    assert (await site.planned())[0] == 15e9
    assert (await site.planned("us", "eu"))[0] == 10e9


@bandwidth
async def test_noise_makes_no_plan_stale_and_a_real_change_does(site: Site) -> None:
    version = await site.version()
    await site.measure_all(latency_s=0.011, bandwidth_bps=9.2e9, sent_bytes=1)
    assert await site.version() == version
    assert await site.planned() == (10e9, 0.01)
    assert "within 15%" in (await site.view()).capacity_why
    await site.measure_all(2, after_s=4000.0, latency_s=0.011, bandwidth_bps=4e9, sent_bytes=1)
    assert await site.version() > version
    assert (await site.planned())[0] == 4e9
    told = [event.data for event in await site.world.events() if event.kind == "link.measured"]
    assert told[-1]["capacity_bps"] == 4e9


@bandwidth
async def test_one_odd_measurement_changes_nothing(site: Site) -> None:
    await site.measure_all(3, after_s=4000.0, latency_s=0.01, bandwidth_bps=6e9, sent_bytes=1)
    await site.measure_all(1, after_s=4000.0, latency_s=0.01, bandwidth_bps=1e9, sent_bytes=1)
    assert (await site.planned())[0] == 6e9


@bandwidth
async def test_what_is_too_old_is_let_go_with_its_reason(site: Site) -> None:
    await site.measure_all(latency_s=0.04, bandwidth_bps=6e9, sent_bytes=1)
    version = await site.version()
    site.world.clock.advance(DAY_S + 1.0)
    await site.look()  # the agents are silent: nothing new is measured
    assert await site.planned() == (10e9, 0.01)
    assert await site.version() > version
    view = await site.view()
    assert "too old" in view.capacity_why
    assert "too old" in view.latency_why


@bandwidth
async def test_a_floor_is_kept_but_not_gone_by(site: Site) -> None:
    await site.measure_all(latency_s=0.01, bandwidth_bps=1e9, is_floor=True, sent_bytes=1)
    assert (await site.planned())[0] == 10e9
    view = await site.view()
    assert view.last_test is not None
    assert (view.last_test.bandwidth_bps, view.last_test.is_floor) == (1e9, True)
    assert "not measured yet" in view.capacity_why


@bandwidth
async def test_no_more_bytes_are_sent_in_a_day_than_the_budget(site: Site) -> None:
    for _ in range(24):
        site.world.clock.advance(3600.0)
        await site.beats()
        for _ in range(2):
            await site.look()
            for test in await site.running():
                near, far = site.at(test.from_agent), site.at(test.to_agent)
                far.measured = [LinkTestReport(test_id=test.test_id, state="listening")]
                await far.beat()
                told = {"bandwidth_bps": 6e9, "sent_bytes": test.max_bytes} if test.max_bytes else {}
                near.measured = [LinkTestReport(test_id=test.test_id, state="done", latency_s=0.01, **told)]
                await near.beat()
        sent = await site.world.run(
            lambda session: link_tests.sent_since(session, site.world.clock.now() - DAY_S)
        )
        assert max(sent.values()) <= 1000 * MB
    assert sent == {("eu", "us"): 1000 * MB, ("us", "eu"): 1000 * MB}, "and the budget is used"


async def test_a_region_is_measured_by_one_at_a_time(world: World) -> None:
    site = Site(world)
    await site.join("eu", "us", "asia", "africa", "oceania")
    await site.look()
    tests = await site.running()
    ends = [end for test in tests for end in (test.src, test.dst)]
    assert len(tests) == 2, "five regions are two pairs and one"
    assert len(set(ends)) == len(ends)


@bandwidth
async def test_bytes_are_never_sent_while_a_job_needs_the_links_and_round_trips_still_are(site: Site) -> None:
    world = site.world
    await world.submit(parallelism={"stages": 4})
    await world.plan()
    test = await site.asked()
    assert test.kind == "latency", "a gang is starting over both regions"
    await world.until_running(site.agents.values())
    assert await world.run(
        lambda s: link_tests.change_running(s, test.test_id, ended_at_s=1.0, outcome="done")
    )
    world.clock.advance(4000.0)
    await site.beats()
    assert (await site.asked()).kind == "latency", "a running job holds the links"


@bandwidth
async def test_a_gang_that_starts_inside_a_region_is_critical_for_its_links(site: Site) -> None:
    await site.world.submit(parallelism={"stages": 2})  # fits into one region
    await site.world.plan()
    assert (await site.asked()).kind == "latency"
    assert not (await site.world.run(allocations.held_links)), "it holds no link"


@bandwidth
async def test_a_measurement_is_broken_off_as_soon_as_a_job_begins(site: Site) -> None:
    world = site.world
    test = await site.asked()
    near, far = site.at(test.from_agent), site.at(test.to_agent)
    far.measured = [LinkTestReport(test_id=test.test_id, state="listening")]
    await site.beats()
    await near.beat()
    assert near.link_tests
    await world.submit(parallelism={"stages": 4})
    await world.plan()
    await site.beats()
    assert (near.link_tests, far.link_tests) == ([], []), (
        "with the very answer that tells of the first process"
    )
    assert near.started
    await site.look()
    view = await site.view(test.src, test.dst)
    assert view.last_test is not None
    assert view.last_test.outcome == "broken-off"
    assert view.last_test.token is None


async def test_the_port_of_a_measurement_is_given_to_no_gang(site: Site) -> None:
    for agent in site.agents.values():
        await agent.join(port_first=29500, port_last=29500, address=agent.address)
    test = await site.asked()
    await site.world.submit(parallelism={"stages": 2}, placement={"regions": [test.dst]})
    await site.world.plan()
    assert await site.world.held() == (0, 0, 0), "the only port is taken"


async def test_what_agents_do_not_end_is_ended(site: Site) -> None:
    test = await site.asked()
    site.world.clock.advance(300.0)
    await site.beats()
    await site.look()
    found = await site.world.run(lambda session: link_tests.get(session, test.test_id))
    assert found is not None
    assert found.outcome == "timed-out"


@bandwidth
async def test_only_those_who_measure_tell_and_only_once(site: Site) -> None:
    world = site.world
    test = await site.asked()
    near, far = site.at(test.from_agent), site.at(test.to_agent)
    done = LinkTestReport(test_id=test.test_id, state="done", latency_s=0.04, bandwidth_bps=1e9)
    near.measured = [done]
    await near.beat()
    assert await site.running(), "nobody listens yet"
    far.measured = [LinkTestReport(test_id=test.test_id, state="listening"), done]
    await far.beat()
    assert await site.running(), "the far end does not tell the result"
    stranger = FakeAgent(world, "asia", address="10.9.9.9", abilities=frozenset({LINK_TESTS}))
    await stranger.join()
    stranger.measured = [done]
    await stranger.beat()
    assert await site.running(), "nor does a third"
    near.measured = [done, done.model_copy(update={"bandwidth_bps": 9e9})]
    await near.beat()
    view = await site.view(test.src, test.dst)
    assert view.estimate is not None
    assert view.estimate.bandwidth_bps == 1e9


async def test_what_fails_is_told_and_tried_again_after_the_interval(site: Site) -> None:
    test = await site.asked()
    near = site.at(test.from_agent)
    near.measured = [LinkTestReport(test_id=test.test_id, state="failed", detail="refused")]
    await near.beat()
    view = await site.view(test.src, test.dst)
    assert view.last_test is not None
    assert (view.last_test.outcome, view.last_test.detail) == ("failed", "refused")
    assert (await site.look()).is_nothing
    site.world.clock.advance(1000.0)
    await site.beats()
    assert (await site.asked()).test_id != test.test_id


async def test_an_operator_turns_it_off_for_a_link(site: Site) -> None:
    await site.measure(latency_s=0.04)
    for src, dst in (("eu", "us"), ("us", "eu")):
        off = LinkRecord(src, dst, 10e9, 0.01, 1, measuring="off")
        view, _ = await links.put(site.world.services, ADMIN, off, None)
        assert view.latency_why == "as set: it is not measured"
    assert await site.planned() == (10e9, 0.01)
    site.world.clock.advance(2000.0)
    await site.beats()
    assert (await site.look()).is_nothing


@pytest.mark.parametrize("world", [{"link_measuring": "off"}], indirect=True)
async def test_an_operator_turns_it_off_for_all(site: Site) -> None:
    await links.put(
        site.world.services, ADMIN, LinkRecord("eu", "us", 10e9, 0.01, 1, measuring="bandwidth"), None
    )
    assert (await site.look()).is_nothing


@bandwidth
async def test_metrics_tell_what_was_measured_and_count_each_measurement_once(site: Site) -> None:
    observer, registry = Observer(site.world.services), site.world.services.metrics.registry
    site.world.clock.advance(1.0)
    await site.beats()
    test = await site.measure(latency_s=0.04, bandwidth_bps=6e9, sent_bytes=42)
    for _ in range(2):
        site.world.clock.advance(5.0)
        await observer.observe()
    ends = {"src": test.src, "dst": test.dst}
    assert registry.get_sample_value("bace_link_capacity_bytes_per_second", ends) == 10e9 / 8
    assert registry.get_sample_value("bace_link_planned_bytes_per_second", ends) == 6e9 / 8
    assert registry.get_sample_value("bace_link_measured_bandwidth_bytes_per_second", ends) == 6e9 / 8
    assert registry.get_sample_value("bace_link_measured_latency_seconds", ends) == 0.04
    for kind in ("latency", "bandwidth"):
        age_s = registry.get_sample_value("bace_link_measurement_age_seconds", {**ends, "kind": kind})
        assert age_s == pytest.approx(10.0, abs=0.1)
    outcome = {"kind": "bandwidth", "outcome": "done"}
    assert registry.get_sample_value("bace_link_tests_total", outcome) == 1
    assert registry.get_sample_value("bace_link_test_bytes_total") == 42


def test_a_budget_of_a_day_that_is_too_small_for_one_measurement_is_refused() -> None:
    with pytest.raises(ValidationError, match="BACE_LINK_BYTES_PER_DAY: 1000000 is not valid"):
        Settings(link_measuring=LinkMeasuring.BANDWIDTH, link_bytes_per_day=MB)
    assert Settings(link_bytes_per_day=MB).link_bytes_per_day == MB, "it is not needed for latency"


def test_a_token_is_not_shown_where_a_measurement_is_printed() -> None:
    told = LinkTest(
        test_id="linktest-1",
        role="listen",
        address="10.0.0.1",
        port=29500,
        token="s" * 43,
        streams=0,
        max_bytes=0,
        max_s=0,
        open_s=1,
    )
    assert "s" * 43 not in repr(told)
