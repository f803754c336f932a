"""Whatever a policy does within the rules, and whatever breaks meanwhile: nothing is held twice, and all jobs end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from agents.protocol import ProcessReport, ProcessState
from service import links, nodes
from service.control.scheduling import Outcome
from service.db.engine import make_engine
from service.db.records import AllocationRecord, LinkRecord
from service.db.repositories import allocations, jobs, promises, reports
from service.db.scope import EVERYTHING
from service.db.session import Session
from tests.control_world import ADMIN, FakeAgent, World
from tests.restless import Restless, registered

REGIONS = ("eu-north", "eu-west", "us-east")
SLOTS = 4
MOST_JOBS = 12
TURNS = 150
STEPS = 100
SEEDS = (11, 23)
HOURS_LONG = {
    "model": {
        "layers": 6,
        "hidden": 256,
        "heads": 4,
        "kv_heads": 4,
        "head_dim": 64,
        "ffn": 1024,
        "gated_mlp": True,
        "vocab": 256,
        "seq_len": 512,
    },
    "training": {"micro_batches": 64},
}
"""Jobs for which a move can pay."""
ENDS = {"succeeded", "cancelled", "failed"}


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Its policy throws dice, and is asked at every round."""
    name = registered(monkeypatch, Restless(start=0.8, preempt=0.15, move=0.4))
    engine = make_engine("sqlite://")
    always = {"replan_debounce_s": 1e-4, "replan_interval_s": 1e-4}
    world = World(engine, policy=name, seed=request.param, **always)
    await world.start()
    yield world
    engine.dispose()


@pytest.mark.parametrize(("world", "seed"), [(seed, seed) for seed in SEEDS], indirect=["world"])
async def test_nothing_is_held_twice_and_every_job_ends(
    world: World, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chaos = Chaos(world, await world.cluster_of(*REGIONS, slots=SLOTS), random.Random(seed))
    for _ in range(TURNS):
        await chaos.turn()
    registered(monkeypatch, Restless(start=1.0, preempt=0.0, move=0.0))
    await chaos.finish()
    told = Counter([event.kind for event in await world.events()])
    assert told["job.promised"] > 5
    assert await world.held() == (0, 0, 0)
    assert await world.promises() == {}


async def test_horizon_keeps_to_the_rules_and_its_jobs_end() -> None:
    engine = make_engine("sqlite://")
    world = World(engine, policy="horizon", replan_debounce_s=1e-4, replan_interval_s=1e-4)
    await world.start()
    chaos = Chaos(world, await world.cluster_of(*REGIONS, slots=SLOTS), random.Random(2), **HOURS_LONG)
    for turn, region in enumerate(REGIONS):
        points = [(1800.0 * hour, 0.1 + 0.1 * ((7 * hour + 3 * turn) % 5)) for hour in range(200)]
        await world.price("electricity", region, points)
    for _ in range(TURNS):
        await chaos.turn()
    await chaos.finish()
    assert await world.held() == (0, 0, 0)
    engine.dispose()


class Chaos:
    """A world, dice, and the jobs that were submitted; `model` and `training` are theirs."""

    def __init__(
        self, world: World, agents: list[FakeAgent], dice: random.Random, **kind: dict[str, Any]
    ) -> None:
        self.world, self.agents, self.dice, self.kind = world, agents, dice, kind
        self.jobs: list[str] = []

    async def turn(self) -> None:
        """Something happens; then everything is as it must be."""
        often = [*[self.beat] * 6, *[self.train] * 6, *[self.plan] * 6, *[self.submit] * 2]
        seldom = [self.crash, self.cancel, self.depose, self.drain, self.narrow, self.pause]
        await self.dice.choice([*often, *seldom])()
        await self.check()

    async def beat(self) -> None:
        for agent in self.agents:
            if self.dice.random() < 0.8:
                await agent.beat()
                agent.ready()

    async def plan(self) -> None:
        assert await self.world.plan() in (Outcome.APPLIED, Outcome.EMPTY)

    async def submit(self) -> None:
        if len(self.jobs) < MOST_JOBS:
            job_id = await self.world.submit(
                **{**self.kind, "training": {**self.kind.get("training", {}), "steps": STEPS}},
                parallelism={"stages": self.dice.choice(["1..4", "2..6", 2])},
                elasticity=self.dice.choice(["resize", "resize", "restart", "none"]),
            )
            self.jobs.append(job_id)

    async def train(self) -> None:
        """A gang that is up does some steps, saves them perhaps, and ends after the last."""
        running = [
            job for job in [await self.world.job(job_id) for job_id in self.jobs] if job.state == "running"
        ]
        if not running:
            return
        job = self.dice.choice(running)
        gang = [
            each for each in self.living(job.job_id) if each[0].known[each[1]].generation == job.generation
        ]
        stages = _stages(await self.world.allocation(job.job_id))
        if len(gang) < stages:
            return  # a stage has ended, and nobody knows it yet
        agent, key = max(gang, key=lambda each: each[0].known[each[1]].rank)
        last = min(job.reported_steps + self.dice.randint(1, 15), STEPS)
        agent.step(*range(job.reported_steps + 1, last + 1), key=key)
        if self.dice.random() < 0.7:
            agent.checkpoint(last, key=key)
        if last == STEPS:
            for each, ended in gang:
                each.running[ended] = ProcessReport(key=ended, state=ProcessState.EXITED, exit_code=0)
        await agent.beat()

    async def crash(self) -> None:
        agent = self.dice.choice(self.agents)
        agent.exit(-9)
        await agent.beat()

    async def cancel(self) -> None:
        job_id = self.dice.choice(self.jobs or [""])
        if job_id and (await self.world.job(job_id)).state not in ENDS:
            await self.world.cancel(job_id)

    async def depose(self) -> None:
        self.world.clock.advance(self.world.services.settings.leader_lease_s + 1)
        await self.world.lead(f"leader-{self.dice.random()}")

    async def drain(self) -> None:
        verb = self.dice.choice([nodes.drain, nodes.cordon, nodes.uncordon, nodes.uncordon])
        await verb(self.world.services, ADMIN, f"node-{self.dice.choice(REGIONS)}", None)

    async def narrow(self) -> None:
        src, dst = self.dice.sample(REGIONS, 2)
        await self._link(src, dst, self.dice.choice([1e9, 5e9, 10e9]))

    async def pause(self) -> None:
        """Time passes; somebody may be silent for so long that its node is lost."""
        silent = self.dice.choice([None, *self.agents])
        for turn in range(12):
            self.world.clock.advance(20)
            await self.world.beats(agent for agent in self.agents if agent is not silent)
            if silent is not None and turn == 3:  # its lease has run out
                silent.exit(-15, cause="lease-expired")
            await self.world.liveness.sweep()
            await self.world.reconcile()

    async def finish(self) -> None:
        """Nothing breaks any more."""
        for region in REGIONS:
            await nodes.uncordon(self.world.services, ADMIN, f"node-{region}", None)
        for src in REGIONS:
            for dst in REGIONS:
                if src != dst:
                    await self._link(src, dst, 10e9)
        for _ in range(400):
            self.world.clock.advance(30)
            await self.plan()
            await self.world.until_running(self.agents)
            await self.world.liveness.sweep()
            await self.world.reconcile()
            await self.train()
            await self.check()
            states = {(await self.world.job(job_id)).state for job_id in self.jobs}
            if states <= ENDS:
                return
        pytest.fail(f"after all that time: {states}")

    def living(self, job_id: str) -> list[tuple[FakeAgent, str]]:
        """Agent and key of every process of the job that lives."""
        return [
            (agent, key)
            for agent in self.agents
            for key in agent.alive()
            if agent.known[key].job_id == job_id
        ]

    async def check(self) -> None:
        for job_id in self.jobs:
            generations = {agent.known[key].generation for agent, key in self.living(job_id)}
            assert len(generations) <= 1, f"{job_id} runs in generations {generations} at once"
        await self.world.run(self._check_rows)

    def _check_rows(self, session: Session) -> None:
        held = Counter(gpu.node_id for gpu in allocations.held_gpus(session))
        assert all(count <= SLOTS for count in held.values()), held
        found = {
            job.job_id: job for job in (jobs.get(session, EVERYTHING, each) for each in self.jobs) if job
        }
        for promise in promises.all_of_them(session):
            job = found[promise.job_id]
            assert job.state in ("queued", "stopping"), f"a job that is {job.state} has a promise"
            assert promise.generation == job.generation + 1
            assert not job.cancel_requested
        for job in found.values():
            generations = allocations.of_jobs(session, EVERYTHING, [job.job_id])
            assert [each.generation for each in generations] == list(range(1, job.generation + 1))
            if job.spec["elasticity"] == "none":
                assert not {each.stop_cause for each in generations} & {"preempted", "moved"}
            if job.spec["elasticity"] != "resize":
                for before, after in pairwise(generations):
                    assert after.first_step == 1 or _stages(after) == _stages(before)
            if job.state == "succeeded":
                steps = [step.step for step in reports.steps(session, EVERYTHING, job.job_id, 0, 1000)]
                assert steps == list(range(1, STEPS + 1)), "each step once"

    async def _link(self, src: str, dst: str, capacity_bps: float) -> None:
        wanted = LinkRecord(src, dst, capacity_bps, 0.001, 1)
        await links.put(self.world.services, ADMIN, wanted, None)


def _stages(allocation: AllocationRecord) -> int:
    return sum(segment["stages"] for segment in allocation.placement["segments"])
