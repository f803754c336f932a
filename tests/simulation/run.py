"""Runs the world of one seed, and says what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog

from scheduler import policies
from tests.restless import Restless
from tests.simulation.dice import Dice
from tests.simulation.faults import KINDS
from tests.simulation.guard import no_way_round_the_ports
from tests.simulation.loop import VirtualLoop
from tests.simulation.trace import Trace, Violation
from tests.simulation.world import Size, World

RESTLESS = Restless(start=0.9, preempt=0.03, move=0.08)
POLICIES = ("bace", "restless", "bace", "restless", "horizon")
_wall_s = time.perf_counter
_cpu_s = time.process_time


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: it and the code say everything about what happens."""

    seed: int
    seconds: float = 300.0
    agents: int = 20
    faults: frozenset[str] = frozenset(KINDS)

    @property
    def policy(self) -> str:
        return POLICIES[self.seed % len(POLICIES)]


@dataclass(slots=True)
class Outcome:
    """What happened."""

    plan: Plan
    trace_hash: str
    simulated_s: float
    wall_s: float
    cpu_s: float
    events: int
    commits: int
    faults: dict[str, int]
    reached: dict[str, int]
    violations: list[Violation]
    last_lines: list[str] = field(default_factory=list)
    lines: list[str] | None = None

    def document(self) -> dict[str, Any]:
        """The line that `make simulate` prints."""
        return {
            "seed": self.plan.seed,
            "seconds": self.plan.seconds,
            "agents": self.plan.agents,
            "policy": self.plan.policy,
            "trace_hash": self.trace_hash,
            "simulated_s": round(self.simulated_s, 1),
            "wall_s": round(self.wall_s, 2),
            "cpu_s": round(self.cpu_s, 2),
            "events": self.events,
            "commits": self.commits,
            "faults": self.faults,
            "reached": self.reached,
            "violations": [
                f"{each.rule}: {each.detail} ({each.at_s:.1f} s)" for each in self.violations[:10]
            ],
        }


def run(plan: Plan, keep_lines: bool = False) -> Outcome:
    """The same plan gives the same outcome, in any process."""
    loop = VirtualLoop(Dice(plan.seed).of("order"))
    asyncio.set_event_loop(None)
    began_s, worked_s = _wall_s(), _cpu_s()
    gc.collect()
    gc.disable()  # nothing may depend on when it runs, and it takes its time
    with _quiet(), _restless_is_a_policy(), no_way_round_the_ports():
        world = loop.run_until_complete(_live(plan, keep_lines))
        simulated_s = loop.time()
        loop.close()
    gc.enable()
    trace: Trace = world.trace
    return Outcome(
        plan=plan,
        trace_hash=trace.digest(),
        simulated_s=simulated_s,
        wall_s=_wall_s() - began_s,
        cpu_s=_cpu_s() - worked_s,
        events=trace.events,
        commits=world.database.commits,
        faults=dict(sorted(trace.faults.items())),
        reached=dict(sorted(trace.reached.items())),
        violations=trace.violations,
        last_lines=list(trace.last),
        lines=trace.lines,
    )


async def _live(plan: Plan, keep_lines: bool) -> World:
    world = World(plan.seed, Size(plan.agents), plan.faults, plan.policy, keep_lines)
    await world.run(plan.seconds)
    return world


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The server's log goes nowhere."""
    before = structlog.get_config()
    structlog.configure(
        processors=[_drop],
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)


@contextlib.contextmanager
def _restless_is_a_policy() -> Iterator[None]:
    before = policies.POLICIES
    policies.POLICIES = {**before, RESTLESS.name: RESTLESS}  # type: ignore[assignment,dict-item]
    try:
        yield
    finally:
        policies.POLICIES = before


def _drop(logger: Any, method: str, event: Any) -> Any:
    raise structlog.DropEvent
