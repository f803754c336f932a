"""What to do, given what should run and what is known: a pure function.

Level-triggered: it looks at the whole of both sides, so a reply that is lost, repeated or late does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from agents.causes import LEASE_EXPIRED, NOT_DESIRED
from agents.protocol import StageProcess

_KEY = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)+")


class Known(Protocol):
    """A process that this agent has started or refused, now or in an earlier life."""

    @property
    def node_id(self) -> str: ...
    @property
    def gpu_indices(self) -> tuple[int, ...]: ...
    @property
    def ended(self) -> bool: ...
    @property
    def stop_cause(self) -> str | None:
        """Why it was told to stop; None if it was not."""
        ...


@dataclass(frozen=True, slots=True)
class Start:
    """Start this process: its key is new."""

    process: StageProcess


@dataclass(frozen=True, slots=True)
class Refuse:
    """Report this process as failed to start: this agent cannot mean to run it."""

    process: StageProcess
    detail: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask this process to stop, once."""

    key: str
    cause: str


Action = Start | Refuse | Stop


def reconcile(
    desired: Iterable[StageProcess],
    known: Mapping[str, Known],
    tombstones: Container[str],
    nodes: Mapping[str, int],
    lease_valid: bool,
) -> tuple[Action, ...]:
    """The actions, stops first.

    `nodes` gives the GPUs or slots of each node of this agent. A key that is known, or was known and has been
    forgotten, is never started. A process whose GPUs are still held by another waits: it is started by a later
    call, when they are free. Without a lease nothing is started and everything is stopped.
    """
    wanted = {process.key: process for process in reversed(list(desired))}
    actions: list[Action] = [
        Stop(key, NOT_DESIRED if lease_valid else LEASE_EXPIRED)
        for key, process in sorted(known.items())
        if not process.ended and process.stop_cause is None and not (lease_valid and key in wanted)
    ]
    if not lease_valid:
        return tuple(actions)
    held = {
        (process.node_id, index)
        for process in known.values()
        if not process.ended
        for index in process.gpu_indices
    }
    for key, process in sorted(wanted.items()):
        if key in known or key in tombstones:
            continue
        wrong = _what_is_wrong(process, nodes)
        slots = {(process.node_id, index) for index in process.gpu_indices}
        if wrong is not None:
            actions.append(Refuse(process, wrong))
        elif not slots & held:
            held |= slots
            actions.append(Start(process))
    return tuple(actions)


def _what_is_wrong(process: StageProcess, nodes: Mapping[str, int]) -> str | None:
    if not _KEY.fullmatch(process.key):
        return f"key {process.key!r}: expected <allocation_id>/<rank> of [a-z0-9._-]"
    if process.node_id not in nodes:
        return f"node_id {process.node_id!r}: this agent stands for {', '.join(sorted(nodes))}"
    gpus = nodes[process.node_id]
    if max(process.gpu_indices) >= gpus or len(set(process.gpu_indices)) != len(process.gpu_indices):
        return f"gpu_indices {process.gpu_indices}: node {process.node_id} has {gpus}, numbered from 0, each once"
    return None
