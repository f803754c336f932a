"""Who did what, when, from where, and what came of it: a row for every request that may change something, and every
denial.

What was changed is written in the transaction of the change (`AuditedDb`): there is no change without its row. What
changed nothing (a denial, a refusal, a dry run) waits in memory for a few seconds (`AuditLog`) and is bounded there:
like denials from one place are one row with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

from service import cursors, limits
from service.access import Principal
from service.db.records import AuditRecord
from service.db.repositories import audit, events
from service.db.session import Session
from service.db.tables import SHARED_PROJECT
from service.logging import without_secrets
from service.ports import Db

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")

NEW = 0
"""The number of an entry that has none yet."""


class Outcome(StrEnum):
    """What came of a request."""

    DONE = "done"
    DENIED = "denied"  # not authenticated, not allowed, not the caller's to see, or too many of them
    REFUSED = "refused"  # it could not be meant, or not now
    FAILED = "failed"  # a defect, or no database


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is known of a request before anything has come of it. `action` is its method and route."""

    action: str
    path: str
    address: str
    trace_id: str
    principal: Principal | None
    at_s: float

    def entry(self, outcome: Outcome, code: str = "") -> AuditRecord:
        """A row; `code` is that of the problem."""
        caller = self.principal
        return AuditRecord(
            seq=NEW,
            project=caller.project if caller else SHARED_PROJECT,
            at_s=self.at_s,
            last_at_s=self.at_s,
            count=1,
            account=caller.account if caller else "",
            token_id=caller.token_id if caller else "",
            action=self.action[: limits.MAX_AUDIT_TEXT],
            path=without_secrets(self.path)[: limits.MAX_AUDIT_TEXT],
            object_kind="",
            object_id="",
            outcome=outcome.value,
            code=code,
            address=self.address[: limits.MAX_AUDIT_TEXT],
            trace_id=self.trace_id,
        )


@dataclass(slots=True)
class AuditedDb:
    """`ports.Db` of one request: its first transaction that may write holds the request's row too."""

    inner: Db
    attempt: Attempt
    is_written: bool = False

    async def run(self, work: Callable[[Session], T]) -> T:
        if self.is_written:
            return await self.inner.run(work)
        result = await self.inner.run(lambda session: self._with_row(session, work))
        self.is_written = True
        return result

    async def read(self, work: Callable[[Session], T]) -> T:
        return await self.inner.read(work)

    def close(self) -> None:
        """The request does not own it."""

    async def together(self, work: Callable[[Session, Sequence[A]], Sequence[R | None]], item: A) -> R | None:
        """`work` appends one event for each item that it stores, in their order."""
        if self.is_written:
            return await self.inner.together(work, item)
        result = await self.inner.together(_WithRows(work), (item, self.attempt))
        self.is_written = result is not None
        return result

    def _with_row(self, session: Session, work: Callable[[Session], T]) -> T:
        result = work(session)
        changes = events.pending(session)
        audit.add(session, [_row(self.attempt, changes[0] if changes else None)])
        return result


@dataclass(frozen=True, slots=True)
class _WithRows(Generic[A, R]):
    """Work of many requests, with the rows of those for which it has stored anything. Equal where the work is."""

    work: Callable[[Session, Sequence[A]], Sequence[R | None]]

    def __call__(self, session: Session, asked: Sequence[tuple[A, Attempt]]) -> Sequence[R | None]:
        results = self.work(session, [item for item, _ in asked])
        stored = [attempt for (_, attempt), result in zip(asked, results, strict=True) if result is not None]
        changes = events.pending(session)
        audit.add(session, [_row(attempt, change) for attempt, change in zip(stored, changes, strict=True)])
        return results


def _row(attempt: Attempt, change: Mapping[str, Any] | None) -> AuditRecord:
    """Of a request that was done, and what it changed (an event's row), if anything."""
    entry = attempt.entry(Outcome.DONE)
    if change is None:
        return entry
    return replace(
        entry,
        object_kind=change["object_kind"],
        object_id=change["object_id"],
        # An administrator's change of a tenant's object is that tenant's to see.
        project=change["project"] if entry.project == SHARED_PROJECT else entry.project,
    )


@dataclass(slots=True)
class AuditLog:
    """Entries that wait to be stored, of one process."""

    _waiting: dict[tuple[str, ...], AuditRecord] = field(default_factory=dict)

    def note(self, entry: AuditRecord) -> None:
        """Like denials become one; beyond the bound even those that are not alike."""
        key: tuple[str, ...] = (entry.trace_id, entry.action)
        if entry.outcome == Outcome.DENIED:
            key = (entry.project, entry.token_id, entry.action, entry.code, entry.address)
        if key not in self._waiting and len(self._waiting) >= limits.MAX_AUDIT_WAITING:
            key = (entry.outcome, entry.code)
            entry = replace(
                entry, project=SHARED_PROJECT, account="", token_id="", action="", path="", address=""
            )
        self._add(key, entry)

    async def write(self, db: Db) -> int:
        """Store what waits; how many rows. Raises UnavailableError; nothing is lost then."""
        taken, self._waiting = self._waiting, {}
        if not taken:
            return 0
        try:
            await db.run(lambda session: audit.add(session, list(taken.values())))
        except BaseException:
            since, self._waiting = self._waiting, taken
            for key, entry in since.items():
                self._add(key, entry)
            raise
        return len(taken)

    def _add(self, key: tuple[str, ...], entry: AuditRecord) -> None:
        before = self._waiting.get(key)
        if before is not None:
            entry = replace(before, count=before.count + entry.count, last_at_s=entry.last_at_s)
        self._waiting[key] = entry


async def list_page(
    db: Db,
    principal: Principal,
    *,
    project: str | None,
    account: str | None,
    outcome: Outcome | None,
    cursor: str | None,
    limit: int,
) -> tuple[list[AuditRecord], str | None]:
    """The newest first, of the caller's project or of everything, and the cursor of what follows."""
    before = cursors.decode_number(cursor)
    scope = principal.scope.narrowed(project)
    found = await db.read(
        lambda session: audit.page(
            session, scope, before=before, account=account, outcome=outcome, limit=limit + 1
        )
    )
    if len(found) <= limit:
        return found, None
    return found[:limit], cursors.encode_number(found[limit - 1].seq)
