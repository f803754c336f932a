"""Why a gang ended before its time, what that means, and whether trying again can help."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from agents.protocol import ProcessState
from service.db.records import ProcessRecord
from service.lifecycle import LOST


class Kind(StrEnum):
    """Whose fault it is."""

    INFRASTRUCTURE = "infrastructure"
    MEMORY = "memory"
    USER_CODE = "user-code"


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause by name. `rank` orders causes of one gang: the lowest is the root, the others follow from it.

    `most_retries` bounds how often a job is tried again for it without progress, beside what is set for all causes
    (None: that alone).
    """

    name: str
    code: str
    rank: int
    kind: Kind
    most_retries: int | None
    meaning: str


CANCELLED = "cancelled"
PREEMPTED = "preempted"
"""A plan took its place: no failure. The job waits again."""
MOVED = "moved"
"""A plan gave it another place: no failure. The job goes on there."""
BY_PLAN = frozenset({PREEMPTED, MOVED})
NODE_LOST = "node-lost"
START_TIMEOUT = "start-timeout"
ENDED_EARLY = "ended-early"
LEASE_EXPIRED = "lease-expired"
AGENT_STOPPED = "agent-stopped"
FORGOTTEN = "forgotten-by-agent"
STAGE_DIED = "stage-died"
STAGE_FAILED = "stage-failed"
STAGE_ABORTED = "stage-aborted"
FAILED_TO_START = ProcessState.FAILED_TO_START.value

_INFRASTRUCTURE, _MEMORY, _USER = Kind.INFRASTRUCTURE, Kind.MEMORY, Kind.USER_CODE
_AS_SET, _ONCE, _NEVER = None, 1, 0
_IN_ORDER = (
    ("port-taken", "PortTaken", _INFRASTRUCTURE, _AS_SET, "the rendezvous port was taken"),
    ("out-of-memory", "OutOfMemory", _MEMORY, _NEVER, "a stage ran out of memory"),
    ("invalid-plan", "InvalidPlan", _USER, _NEVER, "the worker cannot execute the plan"),
    ("corpus-missing", "CorpusMissing", _USER, _NEVER, "the corpus is not on the node"),
    ("corpus-too-short", "CorpusTooShort", _USER, _NEVER, "the corpus is too short"),
    ("corpus-differs", "CorpusDiffers", _USER, _NEVER, "the nodes hold different corpora"),
    ("checkpoint-unusable", "CheckpointUnusable", _USER, _NEVER, "the checkpoint cannot be read"),
    ("checkpoint-unwritable", "CheckpointUnwritable", _USER, _AS_SET, "the checkpoint cannot be written"),
    # A strict order comes to the same again, one that takes what is ready first perhaps not.
    (
        "drifted",
        "Drifted",
        _INFRASTRUCTURE,
        _ONCE,
        "a stage updated in an order that its rule was not made for",
    ),
    ("diverged", "Diverged", _USER, _ONCE, "what is learned is not finite any more"),
    # Another node may have the program, or the secret.
    (FAILED_TO_START, "FailedToStart", _USER, _ONCE, "the command could not be executed"),
    ("start-failed", "StartFailed", _INFRASTRUCTURE, _AS_SET, "an agent could not begin a stage"),
    ("never-started", "NeverStarted", _INFRASTRUCTURE, _AS_SET, "an agent ended before it began a stage"),
    (STAGE_DIED, "StageDied", _INFRASTRUCTURE, _AS_SET, "a stage was killed"),
    (NODE_LOST, "NodeLost", _INFRASTRUCTURE, _AS_SET, "a node was lost"),
    ("supervisor-lost", "StageLost", _INFRASTRUCTURE, _AS_SET, "a stage vanished with its supervisor"),
    (FORGOTTEN, "StageForgotten", _INFRASTRUCTURE, _AS_SET, "the agent knows nothing of a stage any more"),
    (AGENT_STOPPED, "AgentStopped", _INFRASTRUCTURE, _AS_SET, "an agent stopped its stages"),
    (LEASE_EXPIRED, "LeaseExpired", _INFRASTRUCTURE, _AS_SET, "an agent's lease ran out"),
    (STAGE_FAILED, "StageFailed", _USER, _AS_SET, "a stage ended with an error"),
    (STAGE_ABORTED, "StageAborted", _INFRASTRUCTURE, _AS_SET, "a stage aborted"),
    ("peer-lost", "PeerLost", _INFRASTRUCTURE, _AS_SET, "a stage lost its neighbour"),
    (
        "rendezvous-timeout",
        "RendezvousTimeout",
        _INFRASTRUCTURE,
        _AS_SET,
        "the stages did not find each other",
    ),
    (ENDED_EARLY, "EndedEarly", _USER, _AS_SET, "the stages ended before the last step was reported"),
    (START_TIMEOUT, "StartTimeout", _INFRASTRUCTURE, _AS_SET, "the gang was not ready in time"),
)
"""From root to consequence: where several stages of a gang ended badly, the first of these is to blame."""
CAUSES: Mapping[str, Cause] = MappingProxyType(
    {entry[0]: Cause(entry[0], entry[1], rank, *entry[2:]) for rank, entry in enumerate(_IN_ORDER)}
)


@dataclass(frozen=True, slots=True)
class Failure:
    """The root cause of a gang's end, and where it showed."""

    cause: Cause
    detail: str
    region: str | None = None
    stage: int | None = None
    last_lines: tuple[str, ...] = ()

    def reason(self) -> dict[str, Any]:
        """The reason document that the job's row holds."""
        return {
            "code": self.cause.code,
            "detail": self.detail,
            "region": self.region,
            "stage": self.stage,
            "last_lines": list(self.last_lines),
        }


def cause_of(process: ProcessRecord) -> Cause | None:
    """Why this process ended; None while it lives, when it was told to end, or when it ended well."""
    known = CAUSES.get(process.cause or "")
    if process.state == LOST:
        return known or CAUSES[NODE_LOST]
    if process.state == FAILED_TO_START:
        return known or CAUSES[FAILED_TO_START]
    if process.state == ProcessState.STOPPED:
        return (known or CAUSES[AGENT_STOPPED]) if process.desired else None
    if process.state != ProcessState.EXITED or process.exit_code == 0:
        return None
    if known is not None:
        return known
    if process.exit_code is not None and process.exit_code < 0:
        # A rank whose peer is gone often aborts in its communication library: that is a consequence.
        return CAUSES[STAGE_ABORTED if -process.exit_code == signal.SIGABRT else STAGE_DIED]
    return CAUSES[STAGE_FAILED]


def root_failure(processes: Iterable[ProcessRecord], noticed: str | None) -> Failure | None:
    """The failure that the others follow from; `noticed` is the cause for which the gang was stopped.

    None where nothing failed: the gang was told to end for a reason that is no failure (`drained`).
    """
    if noticed is not None and noticed not in CAUSES:
        return None
    failed = [(cause_of(process), process) for process in processes]
    blamed = min(
        ((cause, process) for cause, process in failed if cause is not None),
        key=lambda pair: (pair[0].rank, pair[1].rank),
        default=None,
    )
    if blamed is not None and (noticed is None or blamed[0].rank <= CAUSES[noticed].rank):
        return _failure(*blamed)
    return None if noticed is None else Failure(CAUSES[noticed], CAUSES[noticed].meaning)


def _failure(cause: Cause, process: ProcessRecord) -> Failure:
    where = f"stage {process.stage} (rank {process.rank}) on {process.node_id} in {process.region}"
    detail = f"{cause.meaning}: {where}{_how(process)}"
    if process.detail:
        detail += f": {process.detail}"
    return Failure(cause, detail, process.region, process.stage, tuple(process.last_lines))


def _how(process: ProcessRecord) -> str:
    if process.exit_code is None:
        return ""
    if process.exit_code >= 0:
        return f", exit code {process.exit_code}"
    number = -process.exit_code
    known = {entry.value for entry in signal.Signals}
    return f", signal {signal.Signals(number).name if number in known else number}"
