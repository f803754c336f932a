"""Who runs the loops: an epoch in the database, and a lease that is renewed.

The lease keeps two instances from doing the same work; the epoch is what makes it safe. Every write of the loops
goes through `Leadership.write`, which proves the epoch in the transaction of the write: an instance that was stopped
for longer than its lease, and comes back, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from service.control.errors import FencedError, WrongClockError
from service.db import common_clock, leader_queries
from service.db.session import Session
from service.services import Services

T = TypeVar("T")

SINGLE = "single"
"""Holder where one process is all there is (SQLite): it need not wait for the lease of its former self."""


@dataclass(slots=True)
class Leadership:
    """The right to run the loops under one epoch. `grace_from_s`: nodes are judged by their silence since then."""

    services: Services
    holder: str
    epoch: int
    grace_from_s: float

    async def write(self, work: Callable[[Session], T]) -> T:
        """Run `work` in a transaction that proves the epoch. Raises FencedError where another has begun."""
        return await self.services.db.run(lambda session: self._guarded(session, work))

    async def renew(self) -> None:
        """Prolong the lease. Raises FencedError where another epoch has begun."""
        now_s, lease_s = self.services.clock.now(), self.services.settings.leader_lease_s
        renewed = await self.services.db.run(
            lambda session: leader_queries.renew_leadership(
                session, epoch=self.epoch, now_s=now_s, lease_s=lease_s
            )
        )
        if not renewed:
            raise self._fenced()

    async def resign(self) -> None:
        """Let another lead without waiting for the end of the lease."""
        await self.services.db.run(
            lambda session: leader_queries.resign_leadership(session, epoch=self.epoch)
        )

    def _guarded(self, session: Session, work: Callable[[Session], T]) -> T:
        if not leader_queries.holds_epoch(session, self.epoch):
            raise self._fenced()
        return work(session)

    def _fenced(self) -> FencedError:
        self.services.metrics.fenced_writes.inc()
        return FencedError(f"epoch {self.epoch} of {self.holder} has ended: another instance leads")


def holder_of(services: Services) -> str:
    """The name under which this process leads."""
    if services.settings.database.startswith("sqlite"):
        return SINGLE
    return services.ids.new("server")


async def check_clock(services: Services) -> None:
    """Raises WrongClockError where this process's clock is not that of the others: it would judge by it."""
    offset_s = await services.db.read(lambda session: common_clock.offset_s(session, services.clock.now()))
    if abs(offset_s) > common_clock.MAX_OFFSET_S:
        raise WrongClockError(
            f"the clock of this machine is {abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} the "
            "database's: let both follow a time server"
        )


async def take(services: Services, holder: str) -> Leadership | None:
    """Lead from now on, or None while another's lease runs."""
    now_s, lease_s = services.clock.now(), services.settings.leader_lease_s
    record = await services.db.run(
        lambda session: leader_queries.take_leadership(session, holder=holder, now_s=now_s, lease_s=lease_s)
    )
    return None if record is None else Leadership(services, holder, record.epoch, grace_from_s=now_s)
