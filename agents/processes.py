"""The processes of this agent: carries out what was decided, and finds out what became of them.

Nothing is kept here that the journal does not have, but how fast each output was read lately: after a restart
the table is the same, and the processes in it are adopted by simply being looked at again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

from agents.backlog import shed
from agents.causes import REFUSED
from agents.environment import Devices, EnvironmentBuilder
from agents.errors import RefusedError
from agents.logs import LineRate, last_lines, read_output
from agents.protocol import LogReport, ProcessReport, ProcessState, StageProcess
from agents.reconcile import Action, Refuse, Start, Stop
from agents.runtime import Ended, Launch, Launcher
from agents.state import AgentState, ProcessRecord
from agents.telemetry import read_reports
from agents.text import fit
from agents.workdir import WorkDir

BASE_MEMORY_BYTES = 2 * 1024**3
"""What an interpreter with its libraries may take beside the memory of its slots."""
READS_PER_LOOK = 4
READS_AT_END = 200
"""An output that is longer than so many reads at its end is shipped in part; its last lines always are."""


class Log(Protocol):
    """Where the agent says what it does (structlog's bound logger)."""

    def info(self, event: str, **fields: object) -> object: ...
    def warning(self, event: str, **fields: object) -> object: ...
    def error(self, event: str, **fields: object) -> object: ...


class Clock(Protocol):
    """The agent's two clocks."""

    def epoch_s(self) -> float:
        """Wall clock: for what people read."""
        ...

    def boot_s(self) -> float:
        """Never steps back: for every duration."""
        ...


class ProcessTable:
    """All processes that were ever started here and not yet forgotten."""

    def __init__(
        self,
        state: AgentState,
        launcher: Launcher,
        work_dir: WorkDir,
        devices: Mapping[str, Devices],
        environment: EnvironmentBuilder,
        clock: Clock,
        log: Log,
    ) -> None:
        self._state = state
        self._launcher = launcher
        self._work_dir = work_dir
        self._devices = devices
        self._environment = environment
        self._clock = clock
        self._log = log
        self._rates: dict[str, LineRate] = {}

    @property
    def alive(self) -> list[ProcessRecord]:
        """Those that have not ended."""
        return [process for process in self._state.processes.values() if not process.ended]

    def carry_out(self, actions: Iterable[Action], start_until_s: float = math.inf) -> bool:
        """Does what `reconcile` decided, each start journaled before its deed. True if starts are left to do.

        One start is always done; those that would begin after `start_until_s` (clock since boot) are left.
        """
        started = False
        for action in actions:
            match action:
                case Stop(key, cause):
                    self.stop(key, cause)
                case Refuse(process, detail):
                    self._refuse(process, REFUSED, detail)
                case Start() if started and self._clock.boot_s() >= start_until_s:
                    return True
                case Start(process):
                    self._start(process)
                    started = True
        return False

    def stop(self, key: str, cause: str) -> None:
        """Asks a process to stop; the supervisor sees to the grace."""
        self._log.info("stopping a worker", key=key, cause=cause)
        self._launcher.stop(key, cause)
        # Journaled after the deed: after a crash in between it is asked again, which does no harm.
        self._state.update(self._state.processes[key].model_copy(update={"stop_cause": cause}))

    def look(self) -> bool:
        """Reads what is new of every process. True if the server should hear of it at once."""
        news = [self._look_at(process) for process in self.alive]
        excess = shed(self._state.unsent)
        if excess is not None:
            self._state.shed(excess.dropped, excess.markers)
            self._log.warning("the buffer of reports is full", dropped_log_lines=excess.lines)
        self._state.compact()
        return any(news)

    def forget(self, keys: Iterable[str]) -> None:
        """The server has stored their end: deletes their folders. One that still runs is kept."""
        ended = [key for key in keys if key in self._state.processes and self._state.processes[key].ended]
        for key in ended:
            self._launcher.remove(key)
            self._rates.pop(key, None)
        self._state.forget(ended)

    def reports(self, waiting_keys: frozenset[str]) -> list[ProcessReport]:
        """The state of all; an end is held back while reports of that process still wait their turn."""
        return [_report(process, process.key in waiting_keys) for process in self._state.processes.values()]

    def _start(self, process: StageProcess) -> None:
        record = _record(process)
        devices = self._devices[process.node_id]
        self._state.begin(record)
        try:
            execution = self._environment.execution(process, devices, self._work_dir.process(process.key))
            memory_bytes = None
            if devices.slot_memory_bytes is not None:
                memory_bytes = int(devices.slot_memory_bytes * len(process.gpu_indices)) + BASE_MEMORY_BYTES
            self._launcher.start(Launch(process.key, execution, process.stop, memory_bytes))
        except RefusedError as error:
            self._fail(record, error.cause, error.detail)
        else:
            self._log.info("started a worker", key=process.key, node=process.node_id, job=process.job_id)

    def _refuse(self, process: StageProcess, cause: str, detail: str) -> None:
        self._fail(_record(process), cause, detail)

    def _fail(self, record: ProcessRecord, cause: str, detail: str) -> None:
        self._log.warning("a worker could not be started", key=record.key, cause=cause, detail=detail)
        failed = {"state": ProcessState.FAILED_TO_START, "cause": cause, "detail": fit(detail)}
        self._state.update(record.model_copy(update=failed))

    def _look_at(self, process: ProcessRecord) -> bool:
        # The end first: what is read after it is all there will ever be.
        ended = self._launcher.ended(process.key)
        seen = process
        for _ in range(READS_PER_LOOK if ended is None else READS_AT_END):
            seen, more = self._read(seen, ended is not None)
            if not more:
                break
        if ended is not None:
            self._end(seen, ended)
        return ended is not None or seen.ready != process.ready

    def _read(self, process: ProcessRecord, ended: bool) -> tuple[ProcessRecord, bool]:
        """One bounded read of report file and output; journals what it found."""
        folder = self._work_dir.process(process.key)
        epoch_s, boot_s = self._clock.epoch_s(), self._clock.boot_s()
        rate = self._rates.setdefault(process.key, LineRate(boot_s))
        told = read_reports(folder, process.key, process.report_offset, self._state.next_seq, epoch_s, ended)
        output = read_output(folder, process.log, rate, boot_s, ended)
        first_seq = self._state.next_seq + len(told.reports)
        logs = [
            LogReport(
                seq=first_seq + number,
                key=process.key,
                first_line=piece.first_line,
                lines=list(piece.lines),
                at_s=epoch_s,
            )
            for number, piece in enumerate(output.pieces)
        ]
        if told.unreadable_lines:
            self._log.warning(
                "unreadable lines in a report file", key=process.key, lines=told.unreadable_lines
            )
        seen = process.model_copy(
            update={
                "report_offset": told.offset,
                "log": output.position,
                "ready": process.ready or told.ready,
                "state": ProcessState.READY if told.ready else process.state,
                "cause": told.cause or process.cause,
                "detail": told.detail or process.detail,
            }
        )
        if seen != process:
            self._state.update(seen, [*told.reports, *logs])
        return seen, told.more or output.more

    def _end(self, process: ProcessRecord, ended: Ended) -> None:
        self._log.info(
            "a worker has ended", key=process.key, state=str(ended.state), exit_code=ended.exit_code
        )
        # Where the supervisor knows nothing better, what the worker said of its end stands.
        end = {
            "state": ended.state,
            "exit_code": ended.exit_code,
            "cause": ended.cause or process.cause,
            "detail": ended.detail or process.detail,
            "last_lines": last_lines(self._work_dir.process(process.key)),
        }
        self._state.update(process.model_copy(update=end))


def _record(process: StageProcess) -> ProcessRecord:
    return ProcessRecord(
        key=process.key,
        node_id=process.node_id,
        gpu_indices=tuple(process.gpu_indices),
        grace_s=process.stop.grace_s,
    )


def _report(process: ProcessRecord, hold_back_end: bool) -> ProcessReport:
    if process.ended and hold_back_end:
        state = ProcessState.READY if process.ready else ProcessState.STARTING
        return ProcessReport(key=process.key, state=state)
    return ProcessReport(
        key=process.key,
        state=process.state,
        exit_code=process.exit_code,
        cause=process.cause,
        detail=process.detail,
        last_lines=list(process.last_lines),
    )
