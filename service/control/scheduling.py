"""The scheduling loop: one planning round after another, woken by what changed, or by the clock.

    1. snapshot   a short read of everything that a decision may look at
    2. decide     the policy, away from the event loop and outside of any transaction
    3. check      the plan against the snapshot, by code that shares nothing with the policies
    4. pack       stages onto the GPUs of nodes
    5. apply      one transaction, guarded by the leader's epoch and the snapshot's version

A plan that is stale when it comes to 5 is dropped, and the round begins again at once. Whatever fails in a round,
nothing of its plan is applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

import structlog

from scheduler.check import check_plan
from scheduler.plan import Plan
from scheduler.policies import PolicyConfig, decide
from scheduler.snapshot import Snapshot
from service.control import applier
from service.control.applier import Grounds, PackedPlan
from service.control.errors import DoublePromiseError, StalePlanError
from service.control.leader import Leadership
from service.lifecycle import Moment
from service.services import Services

ACTOR = "scheduler"
ATTEMPTS = 10
"""Rounds in a row that may find themselves stale before the loop waits for the next wake-up."""

log = structlog.get_logger(__name__)


class Outcome(StrEnum):
    """What became of a plan."""

    EMPTY = "empty"  # nobody waits
    APPLIED = "applied"
    STALE = "stale"
    INVALID = "invalid"  # it breaks a rule, or would promise something twice: a defect, never applied


class Scheduler:
    """Runs planning rounds for as long as its leadership holds."""

    def __init__(self, services: Services, leadership: Leadership) -> None:
        self._services = services
        self._leadership = leadership
        settings = services.settings
        self._config = PolicyConfig(name=settings.policy, strict=settings.strict, seed=settings.seed)

    async def plan(self) -> Outcome:
        """Rounds until one is not stale, within a bound. Raises FencedError where another instance leads."""
        outcome = Outcome.STALE
        for _ in range(ATTEMPTS):
            outcome = await self.round()
            self._services.metrics.plans.labels(outcome.value).inc()
            if outcome is not Outcome.STALE:
                break
        return outcome

    async def round(self) -> Outcome:
        """One planning round."""
        # 1. snapshot
        with self._timed("snapshot"):
            snapshot = await self._snapshot()
        if not snapshot.waiting:
            return Outcome.EMPTY
        # 2. decide
        with self._timed("decide"):
            plan = await self._services.compute.run(lambda: decide(snapshot, self._config))
        # 3. check
        with self._timed("check"):
            violations = await self._services.compute.run(lambda: check_plan(snapshot, plan))
        if violations:
            log.error("plan_invalid", violations=[str(violation) for violation in violations[:10]])
            return Outcome.INVALID
        # 4. pack
        with self._timed("pack"):
            packed = self._pack(snapshot, plan)
        # 5. apply
        with self._timed("apply"):
            return await self._apply(snapshot, packed)

    async def _snapshot(self) -> Snapshot:
        now_s = self._services.clock.now()
        snapshots = self._services.snapshots
        return await self._services.db.read(lambda session: snapshots.load(session, now_s))

    def _pack(self, snapshot: Snapshot, plan: Plan) -> PackedPlan:
        ids = [self._services.ids.new("alloc") for _ in plan.starts]
        return applier.prepare(snapshot, plan, ids)

    async def _apply(self, snapshot: Snapshot, packed: PackedPlan) -> Outcome:
        now_s = self._services.clock.now()
        grounds = Grounds(self._leadership.epoch, Moment(now_s, ACTOR), self._services.settings.checkpoints)
        try:
            await self._leadership.write(lambda session: applier.apply_plan(session, packed, grounds))
        except StalePlanError as error:
            log.info("plan_stale", detail=error.detail)
            return Outcome.STALE
        except DoublePromiseError as error:
            log.error("plan_would_promise_twice", detail=error.detail)
            return Outcome.INVALID
        self._services.metrics.placements.inc(len(packed.starts))
        self._services.metrics.snapshot_age.set(max(0.0, now_s - snapshot.now_s))
        return Outcome.APPLIED

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        begin_s = self._services.clock.monotonic()
        yield
        elapsed_s = self._services.clock.monotonic() - begin_s
        self._services.metrics.plan_duration.labels(phase).observe(elapsed_s)
