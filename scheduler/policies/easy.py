"""EASY backfill (D. Lifka, "The ANL/IBM SP scheduling system", 1995), in one region a job.

Jobs come in order of arrival, and start as under FIFO: in the region with the most free GPUs, on as many stages as it
has, up to K*. The first that must wait, the head, has a reservation where and when it can start at the earliest, by the
lengths that running jobs have declared. A later job starts if it does not delay that: it ends before, or takes what the
head leaves over. Nobody else has a reservation (that is what "easy" means), and nothing is ever stopped. For jobs that
may run on one number of stages alone, this is the original.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from scheduler.cluster import PoolKey
from scheduler.evaluate import evaluate
from scheduler.options import Demand
from scheduler.plan import Hold, Plan, Reject, Start, Verdict
from scheduler.policies.baselines import places_by_room
from scheduler.policies.narrowed import at_most
from scheduler.policies.proposal import Proposal
from scheduler.policies.queueing import QueuePolicy, QueueRound
from scheduler.policies.world import World
from scheduler.reasons import Reason, ReasonCode
from scheduler.restart import restart_s
from scheduler.snapshot import RunningJob, Snapshot, WaitingJob

_End = tuple[float, tuple[tuple[PoolKey, int], ...]]
"""(when a job ends, by what it declared; the GPUs of each pool that it leaves then)."""


@dataclass(frozen=True, slots=True)
class EasyPolicy:
    """`verdicts` is the queueing policy that gives the order, starts what comes before the head, and tells why a job
    waits."""

    name: str
    meaning: str
    verdicts: QueuePolicy
    replans: bool = False

    def decide(self, snapshot: Snapshot, *, strict: bool, seed: int) -> Plan:
        """A decision for every waiting job. `strict`: nobody starts behind the head, so nothing is backfilled."""
        round_ = QueueRound.of(self.verdicts, snapshot, strict=strict, seed=seed)
        ends = [_end_of_running(job, snapshot) for job in snapshot.running]
        backfill: _Backfill | None = None
        decisions: list[Verdict] = []
        for job, demand in round_.queue:
            if backfill is not None:
                decisions.append(backfill.decide(job, demand))
                continue
            decision = round_.decide(job, demand)
            decisions.append(decision)
            if isinstance(decision, Start):
                ends.append(_end_of_start(job, decision, snapshot))
            elif isinstance(decision, Hold) and not strict:
                reserved = _reservation(job, demand, round_.world, ends, snapshot.now_s)
                backfill = _Backfill(snapshot, round_, reserved)
        return Plan(snapshot.version, tuple(decisions))


@dataclass(frozen=True, slots=True)
class _Reservation:
    """The head starts at `start_s` in a pool, and leaves `spare` GPUs of it over. Nobody knows when: infinite."""

    head: str
    pool: PoolKey | None
    start_s: float
    spare: int

    def after(self, end: _End) -> _Reservation | None:
        """The reservation once such a job has started as well; None if that would delay the head."""
        end_s, ((pool, gpus),) = end
        if pool != self.pool or end_s <= self.start_s:
            return self
        return replace(self, spare=self.spare - gpus) if gpus <= self.spare else None


def _reservation(
    job: WaitingJob, demand: Demand, world: World, ends: Sequence[_End], now_s: float
) -> _Reservation:
    """Where and when the head finds room first, if all end as they declared; of several pools the roomiest then."""
    size = demand.gpus_per_stage
    needs = {
        pool: candidate.stage_counts.floor * size
        for candidate in demand.candidates
        for pool in candidate.pools
    }
    free = {pool: world.residual.free_gpus(pool) for pool in needs}
    events: list[_End] = [(now_s, ()), *((max(end_s, now_s), held) for end_s, held in ends)]
    events.sort()
    for position, (time_s, held) in enumerate(events):
        for pool, gpus in held:
            if pool in free:
                free[pool] += gpus
        if position + 1 < len(events) and events[position + 1][0] == time_s:
            continue  # all that end at one moment leave together
        roomy = [(-gpus, pool) for pool, gpus in free.items() if gpus >= needs[pool]]
        if roomy and math.isfinite(time_s):
            gpus, pool = min(roomy)
            return _Reservation(job.spec.job_id, pool, time_s, -gpus - needs[pool])
    return _Reservation(job.spec.job_id, None, math.inf, 0)


@dataclass(slots=True)
class _Backfill:
    """The rest of a round, behind the head."""

    snapshot: Snapshot
    round_: QueueRound
    reserved: _Reservation
    _refused: dict[Demand, tuple[Reason, ...]] = field(default_factory=dict)
    """Demands that found no place. Nothing frees within the round, so they find none later on either."""

    def decide(self, job: WaitingJob, demand: Demand) -> Verdict:
        """Starts the job where that does not delay the head."""
        job_id, fits = job.spec.job_id, False
        for proposal in (
            () if demand in self._refused else _proposals(demand, self.round_.world, self.reserved)
        ):
            fits = True
            evaluation = proposal.evaluation
            start = Start(job_id, evaluation.placement, evaluation.iteration_s, proposal.why)
            after = self.reserved.after(_end_of_start(job, start, self.snapshot))
            if after is not None:
                decision = self.round_.start(job, proposal)
                self.reserved = after if isinstance(decision, Start) else self.reserved
                return decision
        never = self.round_.never(job, demand)
        if never:
            return Reject(job_id, never)
        self.round_.held += 1
        if fits:
            delays = (
                f"{self.reserved.head} is before it in the queue, and would start later if this job did now"
            )
            return Hold(job_id, self.round_.held, (Reason(ReasonCode.BEHIND_IN_QUEUE, delays),))
        if demand not in self._refused:
            self._refused[demand] = self.round_.reasons(job, demand)
        return Hold(job_id, self.round_.held, self._refused[demand])


def _proposals(demand: Demand, world: World, reserved: _Reservation) -> Iterator[Proposal]:
    """The best that each region offers; of that of the reservation also what the head leaves over."""
    for proposal in places_by_room(demand, world):
        yield proposal
        (segment,) = proposal.evaluation.placement.segments
        stages = reserved.spare // segment.gpus_per_stage
        if (segment.region, segment.gpu_type) == reserved.pool and 0 < stages < segment.stages:
            fewer = at_most(demand, segment.gpu_type, stages)
            yield from (
                each
                for each in places_by_room(fewer, world)
                if each.evaluation.placement.regions == (segment.region,)
            )


def _end_of_running(job: RunningJob, snapshot: Snapshot) -> _End:
    """When a running job has done the steps that it declared; never, where a GPU type of it is gone."""
    placement = job.allocation.placement
    held = tuple(((each.region, each.gpu_type), each.gpus) for each in placement.segments)
    if job.stopping:
        return snapshot.now_s, held
    if any(each.gpu_type not in snapshot.cluster.gpu_types for each in placement.segments):
        return math.inf, held
    iteration_s = evaluate(job.spec, snapshot.cluster, placement.segments, placement.cuts).iteration_s
    ready_s = snapshot.now_s if job.ready_s is None else max(snapshot.now_s, job.ready_s)
    return ready_s + job.remaining_steps * iteration_s, held


def _end_of_start(job: WaitingJob, start: Start, snapshot: Snapshot) -> _End:
    """When a job will have done the steps that it declared if it starts so now; travelling state is not counted."""
    again_s = restart_s(job.spec, snapshot.cluster, start.placement) if job.generation > 1 else 0.0
    held = tuple(((each.region, each.gpu_type), each.gpus) for each in start.placement.segments)
    return snapshot.now_s + again_s + job.remaining_steps * start.predicted_iteration_s, held
