"""A policy that does what a test says in the world of `control_world`, and jobs that it has brought to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from scheduler import policies
from scheduler.evaluate import evaluate
from scheduler.network import Residual
from scheduler.objective import Objective
from scheduler.placement import Cut, Placement, Segment
from scheduler.plan import Decision, Hold, Move, Plan, Start
from scheduler.reasons import Reason, ReasonCode
from scheduler.restart import granted_transfers, state_after_stop
from scheduler.snapshot import RunningJob, Snapshot, WaitingJob
from service.control.scheduling import Outcome
from tests.control_world import FakeAgent, World

CUT_BPS = 1e9
TRANSFER_BPS = 5e8
WIDE = {"training": {"steps": 100}, "parallelism": {"stages": "1..4"}}
"""A job that may be resized."""


@dataclass
class Scripted:
    """A policy that decides what the test says about a snapshot; whoever it says nothing of waits on."""

    script: Callable[[Snapshot], Iterable[Decision]] = lambda _: ()
    replans: bool = True
    name: str = "scripted"
    meaning: str = "What the test says."
    asked: list[Snapshot] = field(default_factory=list)

    def register(self, patch: pytest.MonkeyPatch) -> str:
        """Makes the policy known for as long as the patch lasts; its name."""
        patch.setattr(policies, "POLICIES", {**policies.POLICIES, self.name: self})
        return self.name

    def once(self, *decisions: Decision | Callable[[Snapshot], Decision]) -> None:
        """Decide this the next time, and nothing afterwards."""

        def script(snapshot: Snapshot) -> list[Decision]:
            self.script = lambda _: ()
            return [each(snapshot) if callable(each) else each for each in decisions]

        self.script = script

    def decide(
        self, snapshot: Snapshot, *, strict: bool, seed: int, objective: Objective | None = None
    ) -> Plan:
        self.asked.append(snapshot)
        decisions = list(self.script(snapshot))
        named = {decision.job_id for decision in decisions}
        waits = [job.spec.job_id for job in snapshot.waiting if job.spec.job_id not in named]
        reason = Reason(ReasonCode.BEHIND_IN_QUEUE, "not in the script")
        holds = [Hold(job_id, place, (reason,)) for place, job_id in enumerate(waits, 1)]
        return Plan(snapshot.version, (*decisions, *holds))


def start_at(
    job_id: str, stages: dict[str, int], why: str = "the test says so"
) -> Callable[[Snapshot], Start]:
    """Start the waiting job with so many stages in these regions."""

    def decision(snapshot: Snapshot) -> Start:
        (job,) = [job for job in snapshot.waiting if job.spec.job_id == job_id]
        placement, iteration_s = placed(snapshot, job, stages)
        return Start(job_id, placement, iteration_s, why)

    return decision


def move_to(job_id: str, stages: dict[str, int], why: str = "the test says so") -> Callable[[Snapshot], Move]:
    """Move the running job there, its state over the links it needs."""

    def decision(snapshot: Snapshot) -> Move:
        (job,) = [job for job in snapshot.running if job.spec.job_id == job_id]
        placement, iteration_s = placed(snapshot, job, stages)
        residual = Residual.empty(snapshot.cluster)
        transfers = granted_transfers(job.spec, state_after_stop(job, snapshot.now_s), placement, residual)
        assert transfers is not None
        thin = tuple(replace(each, bandwidth_bps=TRANSFER_BPS) for each in transfers)
        return Move(job_id, placement, iteration_s, why, thin)

    return decision


def placed(
    snapshot: Snapshot, job: WaitingJob | RunningJob, stages: dict[str, int]
) -> tuple[Placement, float]:
    """The placement of a job with so many stages in each region, in this order, and its iteration time."""
    links = snapshot.cluster.links
    segments = tuple(Segment(region, "cpu-slot", count, 1) for region, count in stages.items())
    cuts = tuple(
        Cut(src, dst, CUT_BPS, (links[src, dst].latency_s + links[dst, src].latency_s) / 2)
        for src, dst in pairwise(stages)
    )
    evaluation = evaluate(job.spec, snapshot.cluster, segments, cuts)
    return evaluation.placement, evaluation.iteration_s


async def runs(
    world: World, script: Scripted, agents: list[FakeAgent], stages: dict[str, int], **changes: Any
) -> str:
    """A job that runs there; its id."""
    job_id = await world.submit(**{**WIDE, **changes})
    script.once(start_at(job_id, stages))
    assert await world.plan() is Outcome.APPLIED
    await world.until_running(agents)
    assert (await world.job(job_id)).state == "running"
    return job_id


def reports(agents: list[FakeAgent], job_id: str) -> tuple[FakeAgent, str]:
    """The agent and the key of the job's last stage that lives."""
    live = [
        (agent.known[key].rank, agent, key)
        for agent in agents
        for key in agent.alive()
        if agent.known[key].job_id == job_id
    ]
    _, agent, key = max(live, key=lambda each: each[0])
    return agent, key


async def trains_to(world: World, agents: list[FakeAgent], job_id: str, first: int, last: int) -> None:
    """Steps are reported, and the last of them is saved."""
    agent, key = reports(agents, job_id)
    agent.step(*range(first, last + 1), key=key)
    agent.checkpoint(last, key=key)
    await world.beats(agents)
