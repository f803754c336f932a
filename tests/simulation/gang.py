"""What workers do when they run: find their gang, train step by step, save, end; and fail in their own ways."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tests.simulation.running import Running

RENDEZVOUS_S = 25.0
"""A worker that has not found its gang by then gives up."""
PORT_TAKEN_ODDS = 0.02


class Worker(Protocol):
    """A rank that runs."""

    rank: int
    env: dict[str, str]

    def tell(self, line: dict[str, Any]) -> None:
        """Appends to its report file."""
        ...

    def exit(self, code: int, cause: str | None = None) -> None:
        """Ends by itself."""
        ...


@dataclass
class Gang:
    """The ranks of one allocation, and how far they are."""

    world_size: int
    steps: int
    step: int
    checkpoint_every: int
    checkpoint_uri: str
    behaviour: str
    """`trains`, `fails` or `out-of-memory`: from the job's name."""
    job_id: str
    running: Running
    dice: random.Random
    loop: asyncio.AbstractEventLoop
    members: dict[int, Worker] = field(default_factory=dict)
    is_complete: bool = False
    is_breaking: bool = False

    @classmethod
    def of(
        cls, env: dict[str, str], running: Running, dice: random.Random, loop: asyncio.AbstractEventLoop
    ) -> Gang:
        """From the environment that every rank is given."""
        name = env["BACE_JOB_NAME"]
        return cls(
            world_size=int(env["WORLD_SIZE"]),
            steps=int(env["BACE_STEPS"]),
            step=int(env["BACE_RESUME_STEP"]),
            checkpoint_every=int(env["BACE_CHECKPOINT_EVERY"]),
            checkpoint_uri=env["BACE_CHECKPOINT_URI"],
            behaviour=next(
                (known for known in ("fails", "out-of-memory") if name.startswith(known)), "trains"
            ),
            job_id=env["BACE_JOB_ID"],
            running=running,
            dice=dice,
            loop=loop,
        )

    def join(self, worker: Worker) -> None:
        """A rank has started."""
        if worker.rank == 0 and self.dice.random() < PORT_TAKEN_ODDS:
            self._soon(worker, 0.1, 0.5, lambda: worker.exit(1, "port-taken"))
            return
        self.members[worker.rank] = worker
        self._soon(worker, RENDEZVOUS_S, RENDEZVOUS_S + 2.0, lambda: self._give_up(worker))
        if len(self.members) == self.world_size and not self.is_breaking:
            self.is_complete = True
            for member in self._in_order():
                self._soon(member, 0.2, 1.5, lambda member=member: member.tell({"kind": "ready"}))
            self.loop.call_later(1.5 + self._step_s(), self._train)

    def leave(self, worker: Worker) -> None:
        """A rank has ended, in whatever way: the others notice within seconds."""
        if self.members.pop(worker.rank, None) is None or not self.is_complete or self._is_done:
            return
        self.is_breaking = True
        for member in self._in_order():
            self._soon(member, 0.5, 4.0, lambda member=member: member.exit(1, "peer-lost"))

    def save(self, worker: Worker) -> None:
        """A rank was asked to stop: the last one saves where they are, if all are still there."""
        if self.is_complete and not self.is_breaking and worker.rank == self.world_size - 1 and self.step:
            worker.tell(self._checkpoint())
        worker.tell({"kind": "end", "cause": "stopped"})

    @property
    def _is_done(self) -> bool:
        return self.step >= self.steps

    def _train(self) -> None:
        if self.is_breaking or len(self.members) < self.world_size:
            return
        last = self.members[self.world_size - 1]
        if self.step < self.steps:
            self.step += 1
            self.running.trained(self.job_id, self.step)
            step_s = self._step_s()
            last.tell(
                {
                    "kind": "step",
                    "step": self.step,
                    "loss": 5.0 / self.step,
                    "step_time_s": step_s,
                    "tokens": 128,
                }
            )
            if self.step % self.checkpoint_every == 0:
                last.tell(self._checkpoint())
        if self.behaviour != "trains":
            cause = "out-of-memory" if self.behaviour == "out-of-memory" else None
            last.exit(1, cause)
        elif self._is_done:
            for member in self._in_order():
                self._soon(member, 0.0, 1.0, lambda member=member: member.exit(0))
        else:
            self.loop.call_later(step_s, self._train)

    def _give_up(self, worker: Worker) -> None:
        if not self.is_complete:
            worker.exit(1, "rendezvous-timeout")

    def _checkpoint(self) -> dict[str, Any]:
        self.running.saved(self.job_id, self.step)
        uri = f"{self.checkpoint_uri}/step-{self.step:08d}"
        return {"kind": "checkpoint", "step": self.step, "uri": uri}

    def _in_order(self) -> list[Worker]:
        return [self.members[rank] for rank in sorted(self.members)]

    def _soon(self, worker: Worker, least_s: float, most_s: float, deed: Callable[[], None]) -> None:
        """Later, if the rank is still the one that is there."""

        def due() -> None:
            if self.members.get(worker.rank, worker) is worker:
                deed()

        self.loop.call_later(self.dice.uniform(least_s, most_s), due)

    def _step_s(self) -> float:
        return self.dice.uniform(1.0, 3.0)
