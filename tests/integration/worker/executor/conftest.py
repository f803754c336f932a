"""Pipelines of real processes on either executor."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agents.protocol import WorkerPlan
from scheduler.pipeline.plan.ir import Plan
from tests.wire_plans import wire_plan

RANK = Path(__file__).with_name("rank.py")


@dataclass
class Outcome:
    """What the ranks of a pipeline wrote down."""

    ranks: list[dict[str, Any]]

    @property
    def losses(self) -> list[list[float]]:
        """Of every step, the micro-batches'."""
        (found,) = [rank["losses"] for rank in self.ranks if rank["losses"][0]]
        return found

    @property
    def gradients(self) -> dict[str, list[float]]:
        """By the name of the parameter, of all updates one after the other."""
        found: dict[str, list[float]] = {}
        for rank in self.ranks:
            for update in rank["gradients"]:
                for name, values in update.items():
                    found.setdefault(name, []).extend(values)
        return found

    def traces(self, step: int = 0) -> list[list[str]]:
        """What every rank computed in a step."""
        return [rank["traces"][step] for rank in self.ranks]


@pytest.fixture
def execute(gangs: Any) -> Callable[..., Outcome]:
    """Runs a plan of the scheduler on an executor, `torch` or `ours`."""

    def run(plan: Plan, executor: str, *, delay_s: float = 0.0, **changes: Any) -> Outcome:
        port, workers, results = gangs.free_port(), [], []
        for rank in range(len(plan.actions)):
            told: WorkerPlan = wire_plan(plan, rank, **changes)
            results.append(gangs.folder / f"{executor}-{port}-{rank}.json")
            env = {
                "EXECUTOR": executor, "RESULT": str(results[-1]), "MESSAGE_DELAY_S": str(delay_s),
            }  # fmt: skip
            workers += gangs.start(told, len(plan.actions), ranks=[rank], port=port, env=env, script=RANK)
        codes = [worker.exit_code() for worker in workers]
        assert codes == [0] * len(codes), "\n".join(worker.log.read_text() for worker in workers)
        return Outcome([json.loads(result.read_text()) for result in results])

    return run
