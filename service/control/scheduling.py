"""The scheduling loop: one planning round after another, woken by what changed, or by the clock.

    1. snapshot   a short read of everything that a decision may look at
    2. promises   what has been left begins for whom it was promised to, and is looked at again
    3. decide     the policy, away from the event loop and outside of any transaction
    4. check      the plan against the snapshot, by code that shares nothing with the policies
    5. pack       stages onto the GPUs of nodes
    6. apply      one transaction, guarded by the leader's epoch and the snapshot's version

A plan that is stale when it comes to 6 is dropped, and the round begins again at once. Whatever fails in a round,
nothing of its plan is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

import structlog

from scheduler import policies
from scheduler.check import check_plan
from scheduler.job import JobState
from scheduler.plan import Plan, Start
from scheduler.policies import decide
from scheduler.snapshot import Promise, Snapshot
from service import topics
from service.cluster_view import whole
from service.control import applier
from service.control.applier import Grounds, PackedPlan, PackedPromises
from service.control.asking import Asking, Seen
from service.control.errors import DoublePromiseError, StalePlanError
from service.control.feasibility import never_fitting, rejected_by
from service.control.leader import Leadership
from service.db.records import JobRecord, PromiseRecord
from service.db.repositories import cluster, jobs, promises
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.lifecycle import Moment, NodeState
from service.policy import policy_of
from service.promises import Pending, Standing, stand
from service.services import Services

T = TypeVar("T")

ACTOR = "scheduler"
ATTEMPTS = 10
"""Rounds in a row that may find themselves stale before the loop waits for the next wake-up."""

log = structlog.get_logger(__name__)


class Outcome(StrEnum):
    """What became of a round."""

    EMPTY = "empty"  # nothing to decide: nobody waits, or nothing has changed since the policy was asked
    APPLIED = "applied"
    STALE = "stale"
    INVALID = "invalid"  # it breaks a rule, or would promise something twice: a defect, never applied


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot, and the rows behind its promises, the earliest right first."""

    snapshot: Snapshot
    promised: tuple[tuple[PromiseRecord, JobRecord], ...]


class Scheduler:
    """Runs planning rounds for as long as its leadership holds."""

    def __init__(self, services: Services, leadership: Leadership) -> None:
        self._services = services
        self._leadership = leadership
        settings = services.settings
        self._config = policy_of(settings)
        self._asking = Asking(
            policies.POLICIES[self._config.name].replans,
            settings.replan_debounce_s,
            settings.replan_interval_s,
        )

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
            view = await self._view()
        # 2. promises
        if view.promised:
            with self._timed("promises"):
                kept = await self._keep_promises(view)
            if kept is Outcome.APPLIED:
                view = await self._view()
            elif kept is not Outcome.EMPTY:
                return kept
        snapshot = view.snapshot
        if not self._asking.is_due(snapshot):
            return Outcome.EMPTY
        # 3. decide
        with self._timed("decide"):
            plan = await self._services.compute.run(lambda: decide(snapshot, self._config))
            never = await self._never_fitting(snapshot, plan)
        # 4. check
        with self._timed("check"):
            violations = await self._services.compute.run(lambda: check_plan(snapshot, plan))
        if violations:
            log.error("plan_invalid", violations=[str(violation) for violation in violations[:10]])
            self._asking.was_asked(Seen.of(snapshot), snapshot.now_s)
            return Outcome.INVALID
        # 5. pack
        with self._timed("pack"):
            packed = await self._services.compute.run(lambda: self._pack(snapshot, plan, never))
        # 6. apply
        with self._timed("apply"):
            return await self._apply(snapshot, packed)

    async def _never_fitting(self, snapshot: Snapshot, plan: Plan) -> frozenset[str]:
        """Of the jobs that a plan rejects, those that could not run with all nodes there either."""
        rejected = rejected_by(plan)
        nodes = await self._services.db.read(cluster.nodes) if rejected else []
        if all(node.state == NodeState.READY for node in nodes):
            return rejected
        there_is = whole(snapshot.cluster, nodes)
        return await self._services.compute.run(
            lambda: never_fitting(snapshot, rejected, there_is, self._config)
        )

    async def _view(self) -> View:
        now_s = self._services.clock.now()
        snapshots = self._services.snapshots

        def read(session: Session) -> View:
            rows = ((row, jobs.get(session, EVERYTHING, row.job_id)) for row in promises.all_of_them(session))
            promised = tuple((row, job) for row, job in rows if job is not None)
            return View(snapshots.load(session, now_s), promised)

        return await self._services.db.read(read)

    async def _keep_promises(self, view: View) -> Outcome:
        """EMPTY where every promise has to wait."""
        snapshot, promised = view.snapshot, {each.spec.job_id: each for each in view.snapshot.promised}
        rows = {row.job_id: row for row, _ in view.promised}
        pending = [
            _pending(row, job, promised[row.job_id]) for row, job in view.promised if row.job_id in promised
        ]
        max_age_s = self._services.settings.promise_max_age_s
        standing = await self._services.compute.run(lambda: stand(snapshot, pending, max_age_s))
        if not (standing.beginning or standing.broken):
            return Outcome.EMPTY
        packed = await self._services.compute.run(lambda: self._pack_promises(snapshot, standing, rows))
        begun = await self._write(lambda session: applier.begin_promised(session, packed, self._grounds()))
        if isinstance(begun, Outcome):
            return begun
        for broken in standing.broken:
            log.info("promise_broken", job_id=broken.job_id, detail=broken.detail)
        self._services.metrics.broken_promises.inc(len(standing.broken))
        self._services.metrics.placements.inc(begun)
        return Outcome.APPLIED

    def _pack_promises(
        self, snapshot: Snapshot, standing: Standing, rows: dict[str, PromiseRecord]
    ) -> PackedPromises:
        promised = {each.spec.job_id: each for each in snapshot.promised}
        starts = [_start(rows[job_id], promised[job_id]) for job_id in standing.beginning]
        ids = [self._services.ids.new("alloc") for _ in starts]
        return PackedPromises(snapshot.version, applier.pack_starts(snapshot, starts, ids), standing.broken)

    def _pack(self, snapshot: Snapshot, plan: Plan, never: frozenset[str]) -> PackedPlan:
        ids = [self._services.ids.new("alloc") for _ in plan.starts]
        return applier.prepare(snapshot, plan, ids, never)

    async def _apply(self, snapshot: Snapshot, packed: PackedPlan) -> Outcome:
        version = await self._write(lambda session: applier.apply_plan(session, packed, self._grounds()))
        if isinstance(version, Outcome):
            return version
        now_s, metrics = self._services.clock.now(), self._services.metrics
        seen = Seen.of(snapshot)
        given = {packed_start.start.job_id for packed_start in packed.starts}
        given |= {decision.job_id for decision in packed.promised}
        given |= packed.later  # as if they were new in the next round
        if packed.later:
            await self._services.bus.publish(topics.PLANNING)
        self._asking.was_asked(replace(seen, version=version, waiting=seen.waiting - given), snapshot.now_s)
        metrics.placements.inc(len(packed.starts))
        metrics.preemptions.inc(len(packed.preemptions))
        stood = {job.spec.job_id: job.allocation.placement for job in snapshot.running}
        for move in packed.moves:
            same_regions = set(stood[move.job_id].regions) == set(move.placement.regions)
            metrics.moves.labels("resize" if same_regions else "migrate").inc()
        metrics.snapshot_age.set(max(0.0, now_s - snapshot.now_s))
        return Outcome.APPLIED

    async def _write(self, work: Callable[[Session], T]) -> T | Outcome:
        """What the transaction answers, or why there was none."""
        try:
            return await self._leadership.write(work)
        except StalePlanError as error:
            log.info("plan_stale", detail=error.detail)
            return Outcome.STALE
        except DoublePromiseError as error:
            log.error("plan_would_promise_twice", detail=error.detail)
            return Outcome.INVALID

    def _grounds(self) -> Grounds:
        moment = Moment(self._services.clock.now(), ACTOR)
        return Grounds(self._leadership.epoch, moment, self._services.settings.checkpoints)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        begin_s = self._services.clock.monotonic()
        yield
        elapsed_s = self._services.clock.monotonic() - begin_s
        self._services.metrics.plan_duration.labels(phase).observe(elapsed_s)


def _pending(row: PromiseRecord, job: JobRecord, promise: Promise) -> Pending:
    return Pending(
        promise,
        row.made_at_s,
        waits=job.state == JobState.QUEUED,
        require_regions=frozenset(job.checkpoint_regions) if job.checkpoint_step else frozenset(),
    )


def _start(row: PromiseRecord, promise: Promise) -> Start:
    return Start(row.job_id, promise.placement, row.predicted_iteration_s, row.why, promise.transfers)
