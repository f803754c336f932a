"""How often agents beat, when a node is lost, and that nobody's clock but the server's decides anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import select

from service import job_reports, jobs
from service.control import billing
from service.db.engine import make_engine
from service.db.repositories import cluster
from service.db.tables import LedgerRow
from service.pace import BEATS_A_LEASE, heartbeat_interval_s, lost_after_s
from service.settings import CLOCK_DRIFT, LEASE_MARGIN_S, Settings
from tests.control_world import ADMIN, FakeAgent, ManualClock, World

REGIONS = ("eu-north", "eu-west", "us-east")


@pytest.mark.parametrize(
    ("agents", "interval_s"), [(0, 2.0), (999, 2.0), (1000, 2.0), (5000, 10.0), (10_000, 20.0), (10**6, 20.0)]
)
def test_all_agents_together_keep_to_the_budget_as_far_as_the_lease_allows(
    agents: int, interval_s: float
) -> None:
    settings = Settings()
    assert heartbeat_interval_s(settings, agents) == interval_s
    assert interval_s * BEATS_A_LEASE <= settings.lease_s, "two may get lost, and the workers go on"


@pytest.mark.parametrize("lease_s", [10.0, 60.0, 600.0, 86_400.0])
@pytest.mark.parametrize("grace_s", [1.0, 120.0, 3600.0])
@pytest.mark.parametrize("beyond", [-0.01, 0.01])
def test_settings_load_only_if_every_worker_has_ended_when_its_node_is_lost(
    lease_s: float, grace_s: float, beyond: float
) -> None:
    slow, fast = 1 - CLOCK_DRIFT, 1 + CLOCK_DRIFT
    workers_end_s = (
        lease_s + grace_s
    ) / slow + LEASE_MARGIN_S / fast  # real time, by the agent's slowest clock
    lost_s = workers_end_s * fast + beyond  # as the server's fastest clock counts it
    given = {"lease_s": lease_s, "max_stop_grace_s": grace_s, "node_lost_after_s": lost_s}
    if beyond < 0:
        with pytest.raises(ValidationError, match="two generations"):
            Settings(**given)
        return
    settings = Settings(**given)
    for agents in (1, 10_000, 10**7):
        assert lost_after_s(settings, heartbeat_interval_s(settings, agents)) >= lost_s


async def test_agents_are_told_the_interval_of_as_many_as_there_are(world: World) -> None:
    object.__setattr__(world.services.settings, "heartbeats_per_s", 1.0)
    agents = await world.cluster_of(*REGIONS)
    assert (await agents[0].beat()).heartbeat_interval_s == 3.0
    more = FakeAgent(world, "us-west")
    await more.join()
    world.clock.advance(6)
    assert (await agents[0].beat()).heartbeat_interval_s == 4.0
    world.clock.advance(world.services.settings.node_lost_after_s + 1)
    assert (await agents[0].beat()).heartbeat_interval_s == 2.0, "those that are silent do not count"


@pytest.fixture
async def patient() -> Any:
    """A world in which a node is lost by the fifth heartbeat that it misses, one a minute."""
    world = World(
        make_engine("sqlite://"),
        heartbeat_interval_s=60.0,
        missed_heartbeats=5,
        lease_s=200.0,
        max_stop_grace_s=10.0,
        node_lost_after_s=230.0,
    )
    await world.start()
    yield world
    world.engine.dispose()


async def test_all_but_the_last_missed_heartbeat_change_nothing(patient: World) -> None:
    world = patient
    silent, *others = await world.cluster_of(*REGIONS)
    job_id = await world.submit(stop={"signal": "TERM", "grace": "5s"})
    await world.plan()
    await world.until_running([silent, *others])
    for _ in range(5):  # longer than `node_lost_after_s`, with every other node heard
        await world.liveness.sweep()
        world.clock.advance(59.9)
        await world.beats(others)
    await world.liveness.sweep()
    assert await _states(world) == ["ready"] * 3
    assert (await world.job(job_id)).state == "running"
    started = list(silent.started)
    await silent.beat()  # it returns within its grace, and keeps its work
    assert silent.started == silent.alive() == started
    for _ in range(5):
        world.clock.advance(60.1)
        await world.beats(others)
        await world.liveness.sweep()
    assert sorted(await _states(world)) == ["lost", "ready", "ready"]
    assert (await world.job(job_id)).state != "running"


@dataclass
class _Skewed:
    """A world as an agent sees it whose clock is wrong."""

    world: World
    offset_s: float

    @property
    def services(self) -> Any:
        return self.world.services

    @property
    def clock(self) -> ManualClock:
        return _SkewedClock(self.world.clock, self.offset_s)


class _SkewedClock(ManualClock):
    def __init__(self, true: ManualClock, offset_s: float) -> None:
        super().__init__(true.now() + offset_s)
        self._true = true

    def advance(self, seconds: float) -> None:
        self._true.advance(seconds)


async def test_agents_clocks_minutes_off_or_set_back_make_no_time_negative(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    clocks = [_Skewed(world, 120.0), _Skewed(world, -120.0), _Skewed(world, 0.0)]
    for agent, clock in zip(agents, clocks, strict=True):
        agent.world = clock  # type: ignore[assignment]
    began_s = world.clock.now()
    job_id = await world.submit(training={"steps": 8})
    await world.plan()
    await world.until_running(agents)
    for step in range(1, 9):
        world.clock.advance(5)
        for agent in agents:
            agent.step(step)
            agent.busy(0.5)
            agent.log(step, f"line {step}")
        if step == 4:
            for clock in clocks:
                clock.offset_s -= 240.0  # set back between the report and its heartbeat
        await world.beats(agents)
        await billing.bill(world.services, world.leadership)
    for agent in agents:
        agent.exit(0)
    await world.beats(agents)
    await world.beats(agents)
    view = await jobs.show(world.services, ADMIN, job_id)
    now_s = world.clock.now()
    assert view.job.state == "succeeded"
    assert 0 <= view.queueing_s <= view.jct_s <= now_s - began_s
    steps = await job_reports.steps(world.services, ADMIN, job_id, 0, 100)
    assert all(began_s <= step.at_s <= now_s for step in steps), "as the server's clock has it"
    lines = (await job_reports.logs(world.services, ADMIN, job_id, stage=None, after=0, limit=100)).lines
    assert all(began_s <= line.at_s <= now_s for line in lines)
    bills = await world.run(
        lambda session: session.execute(select(LedgerRow.from_s, LedgerRow.to_s, LedgerRow.quantity)).all()
    )
    assert all(from_s <= to_s and quantity >= 0 for from_s, to_s, quantity in bills)
    times_s = [event.at_s for event in await world.events()]
    assert times_s == sorted(times_s)


async def _states(world: World) -> list[str]:
    return [node.state for node in await world.run(cluster.nodes)]
