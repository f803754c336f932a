"""Bugs that are planted to see them caught: each takes away one of the mechanisms that a promise rests on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any
from unittest.mock import patch

from agents.journal import Journal
from service import lifecycle, progress, quiet_beats, snapshots
from service.control.liveness import Liveness
from service.db import leader_queries
from service.db.records import EventRecord
from service.db.repositories import access, allocations, audit, events
from service.db.session import Session
from service.services import Services
from tests.simulation.host import HostLauncher


@contextlib.contextmanager
def skip_the_epoch_check() -> Iterator[None]:
    """Whoever once led may write for ever."""
    with patch.object(leader_queries, "holds_epoch", lambda session, epoch: True):
        yield


@contextlib.contextmanager
def drop_the_generation_check() -> Iterator[None]:
    """A job goes on as its next generation, whether or not its last one has ended everywhere."""
    with patch.object(progress, "ENDED_PROCESS_STATES", frozenset(lifecycle.PROCESS_TRANSITIONS)):
        yield


@contextlib.contextmanager
def start_again_after_a_restart() -> Iterator[None]:
    """An agent that was restarted knows nothing of what it had started, on disk or in its journal."""
    real_read, real_start = Journal.read, HostLauncher.start

    def forget(journal: Journal) -> list[Any]:
        real_read(journal)
        return []

    def start(launcher: HostLauncher, launch: Any) -> None:
        launcher.host.process(launch.key).is_made = False
        real_start(launcher, launch)

    with patch.object(Journal, "read", forget), patch.object(HostLauncher, "start", start):
        yield


@contextlib.contextmanager
def reuse_a_gpu_before_its_lease_has_ended() -> Iterator[None]:
    """A node counts as lost after a few heartbeats, whatever lease its agent has."""
    real = Liveness.__init__

    def hasty(sweeper: Liveness, services: Services, leadership: Any) -> None:
        patience_s = 3 * services.settings.heartbeat_interval_s
        settings = services.settings.model_copy(update={"node_lost_after_s": patience_s})
        real(sweeper, replace(services, settings=settings), leadership)

    with patch.object(Liveness, "__init__", hasty):
        yield


@contextlib.contextmanager
def lose_the_idempotency_record() -> Iterator[None]:
    """A submission that comes again makes another job."""
    with patch.object(access, "remember_answers", lambda session, claims: [True] * len(claims)):
        yield


@contextlib.contextmanager
def apply_half_a_gang() -> Iterator[None]:
    """Of the processes of a gang the last is not stored."""
    real = allocations.add

    def half(session: Session, allocation: Any, processes: Any, gpus: Any, links: Any, port: Any) -> None:
        kept = processes[: max(1, len(processes) - 1)]
        real(session, allocation, kept, gpus, links, port)

    with patch.object(allocations, "add", half):
        yield


@contextlib.contextmanager
def believe_late_copies_of_heartbeats() -> Iterator[None]:
    """Every heartbeat is taken for the agent's latest word, also a copy that was long on its way."""
    with (
        patch.object(
            import_module("service.agents_link.heartbeat"), "is_next", lambda agent, beat, answered_s: True
        ),
        patch.object(quiet_beats, "is_next", lambda agent, beat, answered_s: True),
    ):
        yield


@contextlib.contextmanager
def start_beyond_a_quota() -> Iterator[None]:
    """Who plans does not know of quotas."""
    with patch.object(snapshots, "quotas_of", lambda session, now_s: {}):
        yield


@contextlib.contextmanager
def leave_out_a_row_of_the_audit_log() -> Iterator[None]:
    """A change is stored without who made it."""
    with patch.object(audit, "add", lambda session, entries: None):
        yield


@contextlib.contextmanager
def lose_an_event_of_a_stream() -> Iterator[None]:
    """A reader does not find every event after the last one that it saw."""
    real = events.after

    def some(*arguments: Any, **more: Any) -> list[EventRecord]:
        return [event for event in real(*arguments, **more) if event.seq % 20]

    with patch.object(events, "after", some):
        yield


Plant = Callable[[], contextlib.AbstractContextManager[None]]
PLANTED: Mapping[str, Plant] = {
    "skip the epoch check": skip_the_epoch_check,
    "drop the generation check": drop_the_generation_check,
    "reuse a GPU before its lease has ended": reuse_a_gpu_before_its_lease_has_ended,
    "lose the idempotency record": lose_the_idempotency_record,
    "apply half a gang": apply_half_a_gang,
    "start again after a restart": start_again_after_a_restart,
    "believe late copies of heartbeats": believe_late_copies_of_heartbeats,
    "start beyond a quota": start_beyond_a_quota,
    "leave out a row of the audit log": leave_out_a_row_of_the_audit_log,
    "lose an event of a stream": lose_an_event_of_a_stream,
}
