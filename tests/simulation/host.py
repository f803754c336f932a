"""A machine with GPUs: supervisors and workers that outlive the agent, under the lease that its disk holds.

`HostLauncher` is `agents.runtime.Launcher` over it. A supervisor does what `agents.supervisor` does: starts a worker
once, stops it when told or when the lease has run out, kills it after its grace, and leaves how it ended.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from agents.causes import LEASE_EXPIRED, NEVER_STARTED, START_FAILED, SUPERVISOR_LOST
from agents.errors import RefusedError
from agents.protocol import ProcessState
from agents.runtime import Ended, Launch
from tests.simulation.clocks import HostClock
from tests.simulation.disk import Disk, PowerCut
from tests.simulation.gang import Gang
from tests.simulation.running import Running
from tests.simulation.trace import Trace

LOOK_EVERY_S = 0.5
"""How often a supervisor looks at the lease."""
STUBBORN = "stubborn"
"""Jobs of that name do not end when they are asked to."""


@dataclass
class Folder:
    """What is on disk of one process; the parts of `agents.workdir.ProcessFolder` that the agent reads."""

    path: PurePosixPath
    is_made: bool = False
    is_claimed: bool = False
    stop_cause: str | None = None
    ended: Ended | None = None
    report: bytearray = field(default_factory=bytearray)

    @property
    def work(self) -> PurePosixPath:
        return self.path / "work"

    @property
    def report_file(self) -> PurePosixPath:
        return self.work / "report.jsonl"

    @property
    def tmp(self) -> PurePosixPath:
        return self.work / "tmp"

    def open_report(self) -> BinaryIO | None:
        return io.BytesIO(bytes(self.report)) if self.report else None

    def open_log(self) -> int | None:
        """Output is not simulated."""
        return None


class Supervised:
    """A worker that runs, and the supervisor above it."""

    def __init__(self, host: Host, folder: Folder, launch: Launch) -> None:
        self.host = host
        self.folder = folder
        self.key = launch.key
        self.env = launch.execution.env
        self.rank = int(self.env["RANK"])
        self.gpus = tuple(self.env["CUDA_VISIBLE_DEVICES"].split(","))
        self.grace_s = launch.stop.grace_s
        self.is_alive = True
        self.is_stopping = False

    def tell(self, line: dict[str, Any]) -> None:
        if self.is_alive:
            self.folder.report += json.dumps(line).encode() + b"\n"
            if line["kind"] == "ready":
                self.host.news()

    def exit(self, code: int, cause: str | None = None) -> None:
        if not self.is_alive:
            return
        if cause is not None:
            self.folder.report += json.dumps({"kind": "end", "cause": cause}).encode() + b"\n"
        state = ProcessState.EXITED if self.folder.stop_cause is None else ProcessState.STOPPED
        self.end(Ended(state, code, self.folder.stop_cause))

    def stop(self, cause: str) -> None:
        """The stop signal, once; SIGKILL after the grace."""
        if self.folder.stop_cause is None:
            self.folder.stop_cause = cause
        if self.is_stopping or not self.is_alive:
            return
        self.is_stopping = True
        loop, dice = self.host.loop, self.host.dice
        loop.call_later(self.grace_s, self._kill)
        if not self.env["BACE_JOB_NAME"].startswith(STUBBORN):
            loop.call_later(dice.uniform(0.05, 0.9) * self.grace_s, self._end_as_asked)

    def end(self, ended: Ended | None) -> None:
        """It runs no more. None: with its supervisor, which leaves nothing."""
        if self.is_alive:
            self.is_alive = False
            self.folder.ended = ended
            self.host.ended(self)

    def _end_as_asked(self) -> None:
        if self.is_alive:
            self.host.gang_of(self).save(self)
            self.exit(0)

    def _kill(self) -> None:
        if self.is_alive:
            self.host.trace.sometimes("a worker was killed after its grace")
            self.end(
                Ended(
                    ProcessState.STOPPED,
                    -9,
                    self.folder.stop_cause,
                    "killed: it did not end within its grace",
                )
            )


class Host:
    """One machine: its clocks, its disk, what runs on it."""

    def __init__(
        self,
        name: str,
        gpus: int,
        clock: HostClock,
        gangs: dict[str, Gang],
        running: Running,
        trace: Trace,
        dice: random.Random,
    ) -> None:
        self.name = name
        self.gpus = tuple(f"{name}-gpu-{index}" for index in range(gpus))
        self.clock = clock
        self.loop = clock.loop
        self.dice = dice
        self.disk = Disk(dice)
        self.trace = trace
        self.boots = 1
        self.alive: dict[str, Supervised] = {}
        self.news: Callable[[], None] = lambda: None
        self.obeys_commit = 0
        """The commit whose answer its agent obeys now."""
        self.dies_at_start: str | None = None
        """`before` or `after` the next start of a worker: the agent's process ends there."""
        self.cannot_start = False
        self._folders: dict[str, Folder] = {}
        self._gangs = gangs
        self._running = running
        self._watch: asyncio.TimerHandle | None = None

    def process(self, key: str) -> Folder:
        """The folder of a process: `WorkDir.process`."""
        if key not in self._folders:
            self._folders[key] = Folder(PurePosixPath("/agent/run") / key)
        return self._folders[key]

    def forget(self, key: str) -> None:
        self._folders.pop(key, None)

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    def spawn(self, launch: Launch) -> None:
        """A supervisor starts, and a worker below it if the lease allows."""
        folder = self.process(launch.key)
        folder.is_claimed = True
        if not self._lease_is_valid():
            folder.stop_cause = LEASE_EXPIRED
            folder.ended = Ended(ProcessState.STOPPED, None, LEASE_EXPIRED)
            return
        worker = Supervised(self, folder, launch)
        self.alive[launch.key] = worker
        self.trace.add(f"{self.name} starts {launch.key}")
        self._running.started(worker, self.obeys_commit)
        self.gang_of(worker).join(worker)
        self._watch_lease()

    def ended(self, worker: Supervised) -> None:
        del self.alive[worker.key]
        self.trace.add(f"{self.name} ended {worker.key} {worker.folder.ended}")
        self._running.ended(worker)
        self.gang_of(worker).leave(worker)
        self.news()

    def gang_of(self, worker: Supervised) -> Gang:
        allocation_id = worker.env["BACE_ALLOCATION_ID"]
        if allocation_id not in self._gangs:
            self._gangs[allocation_id] = Gang.of(worker.env, self._running, self.dice, self.loop)
        return self._gangs[allocation_id]

    def reboot(self) -> None:
        """The machine goes down with all that runs, and comes up with its disk; its clock since boot begins anew."""
        for worker in list(self.alive.values()):
            worker.end(None)
        self.boots += 1
        self.clock.booted_at_s = self.loop.time()

    def read(self) -> float | None:
        """`agents.lease.Deadline`: of this boot only."""
        if self.disk.lease is None or self.disk.lease[0] != self.boot_id:
            return None
        return self.disk.lease[1]

    def write(self, deadline_s: float) -> None:
        if self.disk.is_full:
            raise OSError("No space left on device")
        self.disk.lease = (self.boot_id, deadline_s)

    def _lease_is_valid(self) -> bool:
        deadline_s = self.read()
        return deadline_s is not None and self.clock.boot_s() < deadline_s

    def _watch_lease(self) -> None:
        """Supervisors see the end of the lease when they look next."""
        deadline_s = self.read()
        if self._watch is None and deadline_s is not None:
            at_s = self.clock.when(deadline_s) + self.dice.uniform(0.0, LOOK_EVERY_S)
            self._watch = self.loop.call_at(at_s, self._look_at_lease)

    def _look_at_lease(self) -> None:
        self._watch = None
        if self.alive and self._lease_is_valid():
            self._watch_lease()
            return
        for worker in list(self.alive.values()):
            if worker.folder.stop_cause is None:
                self.trace.sometimes("a lease ran out and the workers were stopped")
            worker.stop(LEASE_EXPIRED)


class HostLauncher:
    """`agents.runtime.Launcher`: what `LocalLauncher` does with files and processes, on a `Host`."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def start(self, launch: Launch) -> None:
        host = self.host
        folder = host.process(launch.key)
        if folder.is_made:
            return
        if host.cannot_start or host.disk.is_full:
            host.trace.sometimes("a stage could not be started")
            raise RefusedError(START_FAILED, "the work folder could not be made: No space left on device")
        folder.is_made = True
        dies, host.dies_at_start = host.dies_at_start, None
        if dies == "before":
            host.trace.sometimes("an agent died between its intent to start a stage and the start")
            raise PowerCut
        host.spawn(launch)
        if dies == "after":
            host.trace.sometimes("an agent died right after it had started a stage")
            raise PowerCut

    def ended(self, key: str) -> Ended | None:
        folder = self.host.process(key)
        if key in self.host.alive:
            return None
        if folder.ended is not None:
            return folder.ended
        if not folder.is_claimed:
            folder.is_claimed = True  # no supervisor starts afterwards
            return Ended(
                ProcessState.FAILED_TO_START, cause=NEVER_STARTED, detail="the agent ended before the start"
            )
        return Ended(ProcessState.EXITED, cause=SUPERVISOR_LOST, detail="the machine restarted")

    def stop(self, key: str, cause: str) -> None:
        if key in self.host.alive:
            self.host.alive[key].stop(cause)

    def remove(self, key: str) -> None:
        self.host.forget(key)
