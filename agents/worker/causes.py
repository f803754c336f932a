"""Why a worker ended, as the server, the log and the exit code tell it."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class Cause(StrEnum):
    """The `cause` of the last line of the report channel."""

    FINISHED = "finished"
    STOPPED = "stopped"
    CRASHED = "crashed"
    INVALID_PLAN = "invalid-plan"
    PORT_TAKEN = "port-taken"
    RENDEZVOUS_TIMEOUT = "rendezvous-timeout"
    PEER_LOST = "peer-lost"
    OUT_OF_MEMORY = "out-of-memory"
    CORPUS_MISSING = "corpus-missing"
    CORPUS_TOO_SHORT = "corpus-too-short"
    CORPUS_DIFFERS = "corpus-differs"
    CHECKPOINT_UNUSABLE = "checkpoint-unusable"
    CHECKPOINT_UNWRITABLE = "checkpoint-unwritable"
    DRIFTED = "drifted"
    DIVERGED = "diverged"


EXIT_CODES = MappingProxyType(
    {
        Cause.FINISHED: 0,
        Cause.STOPPED: 0,
        Cause.CRASHED: 1,
        Cause.INVALID_PLAN: 2,
        Cause.PORT_TAKEN: 10,
        Cause.RENDEZVOUS_TIMEOUT: 11,
        Cause.PEER_LOST: 12,
        Cause.OUT_OF_MEMORY: 13,
        Cause.CORPUS_MISSING: 14,
        Cause.CORPUS_TOO_SHORT: 15,
        Cause.CORPUS_DIFFERS: 16,
        Cause.CHECKPOINT_UNUSABLE: 17,
        Cause.CHECKPOINT_UNWRITABLE: 18,
        Cause.DRIFTED: 19,
        Cause.DIVERGED: 20,
    }
)


class WorkerEndError(Exception):
    """The worker cannot go on. `detail` tells the reader what was wrong and what would be right."""

    def __init__(self, cause: Cause, detail: str) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause
        self.detail = detail
