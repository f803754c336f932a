"""The one place where GPUs, ports and bandwidth are given away: a whole plan in one transaction, or nothing of it. Of
thousands of starts the first, and the others in the rounds that follow at once: a transaction has to end soon.

`prepare` is done before (packing needs no database); `apply_plan` is the transaction. It is guarded three times: by
the leader's epoch (its caller), by the version of the snapshot that the plan was made from, and by the keys of what
is held: a GPU or a port that another live allocation holds cannot be inserted again.

What a plan stops leaves later. A move, and a start that needs what has to be left first, become promises in the
transaction of their plan; `begin_promised` is the transaction in which they begin, under the same guards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from scheduler.job import Elasticity, JobState
from scheduler.packing import FreeSlots
from scheduler.plan import Hold, Move, Plan, Preempt, Reject, Start
from scheduler.snapshot import Snapshot
from service import causes
from service.cluster_view import link_figures
from service.control import promising, verdicts
from service.control.errors import DoublePromiseError, StalePlanError
from service.control.gangs import Grounds, PackedStart, commit_gang
from service.db.records import JobRecord
from service.db.repositories import allocations, cluster, jobs, leader, promises
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.progress import stop
from service.promises import Broken, starting_at_once

MAX_STARTS = 64
"""Of one transaction: others that write, heartbeats among them, wait for it."""
ROUNDING = 1e-9
"""Relative: sums of granted bandwidth may exceed a capacity by rounding."""

__all__ = ["Grounds", "PackedPlan", "PackedPromises", "apply_plan", "begin_promised", "prepare"]


@dataclass(frozen=True, slots=True)
class PackedPlan:
    """A plan that can be applied. `promised` are its moves, and the starts for which room has to be made first."""

    snapshot_version: int
    starts: tuple[PackedStart, ...]
    later: frozenset[str]
    """Jobs that could start as well, and are decided on anew in the next round."""
    promised: tuple[Start | Move, ...]
    preemptions: tuple[Preempt, ...]
    holds: tuple[Hold, ...]
    rejects: tuple[Reject, ...]
    never: frozenset[str] = frozenset()
    """Of the rejected, those that could not run with all nodes there either."""

    @property
    def moves(self) -> tuple[Move, ...]:
        return tuple(decision for decision in self.promised if isinstance(decision, Move))


@dataclass(frozen=True, slots=True)
class PackedPromises:
    """Promises that begin, with their GPUs, and those that cannot be kept."""

    snapshot_version: int
    beginning: tuple[PackedStart, ...]
    broken: tuple[Broken, ...]


def prepare(
    snapshot: Snapshot, plan: Plan, allocation_ids: Iterable[str], never: frozenset[str] = frozenset()
) -> PackedPlan:
    """Give the first starts that can begin their GPUs. An id for each start of the plan; `never` as there.

    Raises InvalidValueError if the nodes lack room.
    """
    at_once = starting_at_once(snapshot, plan)
    beginning = [start for start in plan.starts if start.job_id in at_once]
    return PackedPlan(
        snapshot_version=plan.snapshot_version,
        starts=pack_starts(snapshot, beginning[:MAX_STARTS], allocation_ids),
        later=frozenset(start.job_id for start in beginning[MAX_STARTS:]),
        promised=(*(start for start in plan.starts if start.job_id not in at_once), *plan.moves),
        preemptions=plan.preemptions,
        holds=tuple(decision for decision in plan.decisions if isinstance(decision, Hold)),
        rejects=tuple(decision for decision in plan.decisions if isinstance(decision, Reject)),
        never=never,
    )


def pack_starts(
    snapshot: Snapshot, starts: Sequence[Start], allocation_ids: Iterable[str]
) -> tuple[PackedStart, ...]:
    """GPUs for starts that all fit, one after the other. Raises InvalidValueError if the nodes lack room."""
    free = FreeSlots(snapshot.cluster.nodes)
    return tuple(
        PackedStart(start, free.take(start.placement), allocation_id)
        for start, allocation_id in zip(starts, allocation_ids, strict=False)
    )


def apply_plan(session: Session, plan: PackedPlan, grounds: Grounds) -> int:
    """Commit a plan whole; the version of what planning looks at, as it is then.

    Raises StalePlanError if the world has changed, DoublePromiseError if it must never be.
    """
    _check_version(session, plan.snapshot_version)
    for preemption in plan.preemptions:
        why = f"preempted: {preemption.why}"
        stop(session, _stoppable(session, preemption.job_id), causes.PREEMPTED, grounds.moment, why=why)
    for move in plan.moves:
        why = f"moved to {move.placement.describe()}: {move.why}"
        stop(session, _stoppable(session, move.job_id), causes.MOVED, grounds.moment, why=why)
    promising.promise(session, plan.promised, plan.snapshot_version, grounds)
    without_port = [hold for start in plan.starts if (hold := commit_gang(session, start, grounds))]
    if plan.starts:
        _check_links(session, plan.starts)
    if plan.starts or plan.promised or plan.preemptions:
        leader.capacity_changed(session)
    verdicts.store(session, (*plan.holds, *without_port), plan.rejects, plan.never, grounds.moment)
    return leader.get(session).snapshot_version


def begin_promised(session: Session, packed: PackedPromises, grounds: Grounds) -> int:
    """Commit the promises that begin, and take back those that cannot be kept; how many began.

    One for which no port is free stays a promise. Raises as `apply_plan`.
    """
    _check_version(session, packed.snapshot_version)
    begun = [start for start in packed.beginning if _begin(session, start, grounds)]
    for broken in packed.broken:
        promising.take_back(session, broken, grounds.moment)
    if begun:
        _check_links(session, begun)
    if begun or packed.broken:
        leader.capacity_changed(session)
    return len(begun)


def _begin(session: Session, start: PackedStart, grounds: Grounds) -> bool:
    hold = commit_gang(session, start, grounds)
    if hold is not None:
        verdicts.store(session, (hold,), (), (), grounds.moment)
        return False
    if not promises.drop(session, start.start.job_id):
        raise StalePlanError(f"nothing is promised to job {start.start.job_id} any more")
    return True


def _check_version(session: Session, planned_for: int) -> None:
    current = leader.get(session).snapshot_version
    if current != planned_for:
        raise StalePlanError(f"the plan was made for version {planned_for}, it is {current} now")


def _stoppable(session: Session, job_id: str) -> JobRecord:
    """A job that still runs and may be stopped."""
    job = jobs.get(session, EVERYTHING, job_id)
    if job is None or job.state not in (JobState.STARTING, JobState.RUNNING) or job.cancel_requested:
        raise StalePlanError(f"job {job_id} does not run any more")
    if job.spec["elasticity"] == Elasticity.NONE:
        raise StalePlanError(f"job {job_id} may not be stopped: its elasticity is none")
    return job


def _used(starts: Iterable[PackedStart]) -> Iterator[tuple[str, str]]:
    for packed in starts:
        for cut in packed.start.placement.cuts:
            yield cut.src, cut.dst
            yield cut.dst, cut.src
        for transfer in packed.start.transfers:
            yield transfer.src, transfer.dst


def _check_links(session: Session, starts: Sequence[PackedStart]) -> None:
    """No byte/s is given away twice, on the links of the new gangs and on what the links of a region share.

    A link that was made smaller than what it already carries is no concern of gangs that do not use it.
    """
    used = set(_used(starts))
    held = allocations.reserved_bps(session)
    for (src, dst), figures in link_figures(session).items():
        if (src, dst) in used:
            _check_sum([held[src, dst]], figures.capacity_bps, f"link {src}->{dst}")
    for region in cluster.regions(session):
        up = [bps for (src, _), bps in held.items() if src == region.region]
        down = [bps for (_, dst), bps in held.items() if dst == region.region]
        if any(region.region in direction for direction in used):
            _check_sum(up, region.uplink_bps, f"uplink of {region.region}")
            _check_sum(down, region.downlink_bps, f"downlink of {region.region}")


def _check_sum(held_bps: Collection[float], capacity_bps: float | None, name: str) -> None:
    if capacity_bps is not None and sum(held_bps) > capacity_bps * (1.0 + ROUNDING):
        raise DoublePromiseError(f"{name}: {sum(held_bps):g} bit/s promised of {capacity_bps:g}")
