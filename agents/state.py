"""What the agent knows, as a fold of its journal: the processes it has ever started, and reports not yet stored.

Every change is a record: written to the journal first, then applied here by the same code that reads it back
after a restart. A record that carries new reports carries the new read positions with it, so that nothing is
reported twice and nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agents.errors import JournalError
from agents.journal import Journal, Record
from agents.protocol import LogReport, ProcessState, Report

ENDED: Final = frozenset({ProcessState.EXITED, ProcessState.STOPPED, ProcessState.FAILED_TO_START})
JOURNAL_VERSION = 1
TOMBSTONES = 20_000
"""Keys remembered after the server has forgotten them. An allocation's id never comes back: this is for replies
that were on their way, and the newest of so many are far more than can be."""
COMPACT_ABOVE_BYTES = 4 * 1024 * 1024

_REPORT: TypeAdapter[Report] = TypeAdapter(Report)


class LogPosition(BaseModel):
    """How far the output was read: which segment, the byte in it, and the number of the line there."""

    model_config = ConfigDict(frozen=True)
    segment: int = 0
    offset: int = 0
    line: int = 0


class ProcessRecord(BaseModel):
    """A process that was started, or refused. Everything about it that must survive the agent."""

    model_config = ConfigDict(frozen=True)
    key: str
    node_id: str
    gpu_indices: tuple[int, ...]
    grace_s: float
    state: ProcessState = ProcessState.STARTING
    ready: bool = False
    """Whether it has ever said so; kept after its end."""
    stop_cause: str | None = None
    exit_code: int | None = None
    cause: str | None = None
    detail: str | None = None
    last_lines: tuple[str, ...] = ()
    report_offset: int = 0
    log: LogPosition = LogPosition()

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class Unsent:
    """A report the server has not confirmed, and its size on the wire."""

    report: Report
    size_bytes: int


class Snapshot(BaseModel):
    """The state as one record: what compaction writes."""

    next_seq: int = 1
    stored: int = 0
    processes: list[ProcessRecord] = Field(default_factory=list)
    tombstones: list[str] = Field(default_factory=list)


class AgentState:
    """The fold. Read it through its attributes; change it through its methods alone."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.next_seq = 1
        self.stored = 0
        self.processes: dict[str, ProcessRecord] = {}
        self.tombstones: dict[str, None] = {}
        self.unsent: dict[int, Unsent] = {}
        self._compact_at_bytes = COMPACT_ABOVE_BYTES
        for record in journal.read():
            self._apply(record)

    def begin(self, process: ProcessRecord) -> None:
        """The intent to start a key, on disk before the start: it is never started again."""
        self._commit([{"is": "process", "process": process.model_dump(mode="json")}])

    def update(self, process: ProcessRecord, reports: Sequence[Report] = ()) -> None:
        """New facts of a process, and the reports that were read up to its new positions."""
        self._commit(
            [
                {
                    "is": "process",
                    "process": process.model_dump(mode="json"),
                    "reports": [report.model_dump(mode="json") for report in reports],
                }
            ]
        )

    def confirm(self, stored: int) -> None:
        """The server has every report up to `stored`."""
        if stored > self.stored:
            self._commit([{"is": "stored", "seq": stored}])

    def forget(self, keys: Iterable[str]) -> None:
        """The server has the end of these; only their keys are kept, so that they never start again."""
        known = [key for key in keys if key in self.processes]
        if known:
            self._commit([{"is": "forgotten", "keys": known}])

    def shed(self, dropped: Sequence[int], markers: Sequence[LogReport]) -> None:
        """Leaves out reports that are too many to keep; the markers say so in their place."""
        documents = [marker.model_dump(mode="json") for marker in markers]
        self._commit([{"is": "shed", "seqs": list(dropped), "reports": documents}])

    def compact(self) -> None:
        """Rewrites a journal that has grown to a multiple of what it says."""
        if self._journal.size_bytes <= self._compact_at_bytes:
            return
        self._journal.replace(self._whole())
        self._compact_at_bytes = max(COMPACT_ABOVE_BYTES, 2 * self._journal.size_bytes)

    def close(self) -> None:
        """Lets go of the journal."""
        self._journal.close()

    def _whole(self) -> list[Record]:
        snapshot = Snapshot(
            next_seq=self.next_seq,
            stored=self.stored,
            processes=list(self.processes.values()),
            tombstones=list(self.tombstones),
        )
        reports = [unsent.report.model_dump(mode="json") for unsent in self.unsent.values()]
        return [
            {"is": "snapshot", "version": JOURNAL_VERSION, "state": snapshot.model_dump(mode="json")},
            {"is": "reports", "reports": reports},
        ]

    def _commit(self, records: list[Record]) -> None:
        if self._journal.size_bytes == 0:
            records = [*self._whole(), *records]
        self._journal.append(records)
        for record in records:
            self._apply(record)

    def _apply(self, record: Mapping[str, Any]) -> None:
        match record["is"]:
            case "snapshot":
                self._apply_snapshot(record)
            case "process":
                process = ProcessRecord.model_validate(record["process"])
                self.processes[process.key] = process
            case "stored":
                self.stored = record["seq"]
                self.unsent = {seq: unsent for seq, unsent in self.unsent.items() if seq > self.stored}
            case "forgotten":
                for key in record["keys"]:
                    self.processes.pop(key, None)
                    self.tombstones[key] = None
                while len(self.tombstones) > TOMBSTONES:
                    del self.tombstones[next(iter(self.tombstones))]
            case "shed":
                for seq in record["seqs"]:
                    self.unsent.pop(seq, None)
        for document in record.get("reports", ()):
            self._keep(_REPORT.validate_python(document))

    def _apply_snapshot(self, record: Mapping[str, Any]) -> None:
        if record["version"] != JOURNAL_VERSION:
            raise JournalError(
                f"the journal is of version {record['version']}; this agent reads version {JOURNAL_VERSION}: "
                "run the agent that wrote it until its workers have ended"
            )
        snapshot = Snapshot.model_validate(record["state"])
        self.next_seq, self.stored = snapshot.next_seq, snapshot.stored
        self.processes = {process.key: process for process in snapshot.processes}
        self.tombstones = dict.fromkeys(snapshot.tombstones)
        self.unsent = {}

    def _keep(self, report: Report) -> None:
        self.unsent[report.seq] = Unsent(report, len(report.model_dump_json()))
        self.next_seq = max(self.next_seq, report.seq + 1)
