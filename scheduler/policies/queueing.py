"""One round of a queueing policy: in its order, each waiting job is started, held or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from scheduler.network import Residual
from scheduler.options import Demand, Demands
from scheduler.plan import Hold, Plan, Reject, Start, Verdict
from scheduler.policies.proposal import Proposal
from scheduler.policies.verdicts import NeedBps, held_reasons, never_reasons, to_keep_up
from scheduler.policies.world import World
from scheduler.priority import Asking, Order
from scheduler.reasons import Reason, ReasonCode
from scheduler.restart import granted_transfers
from scheduler.snapshot import Snapshot, WaitingJob

Place = Callable[[Demand, World], Proposal | None]


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """A policy that goes down a queue and never takes back what it gave.

    `order` sorts the queue, `place` finds a placement on what is free; `could_ever` tells, by the truth of what
    it returns on an empty cluster, whether it ever could. `crosses_regions` is false where a job must stand in
    one region. `growth` is how far the cap of K goes from the stages that the job names (0) to K* (1).
    `mixes_gpu_types`: stages of one job may stand on several. `need_bps` is the least that a cut must get for the
    policy to join two regions.
    """

    name: str
    meaning: str
    order: Order
    place: Place
    could_ever: Callable[[Demand, World], object]
    crosses_regions: bool
    growth: float = 1.0
    mixes_gpu_types: bool = False
    need_bps: NeedBps = to_keep_up
    replans: bool = False
    """Whether it may change running jobs, and so has something to decide when none waits."""

    def decide(self, snapshot: Snapshot, *, strict: bool, seed: int) -> Plan:
        """A decision for every waiting job. `strict`: behind the first job that must wait, nobody starts."""
        round_ = QueueRound.of(self, snapshot, strict=strict, seed=seed)
        decisions = tuple(round_.decide(job, demand) for job, demand in round_.queue)
        return Plan(snapshot.version, decisions)


@dataclass(slots=True)
class QueueRound:
    """What a round knows as it goes down the queue."""

    policy: QueuePolicy
    world: World
    before: World
    """As `world` was when the round began."""
    capacity: bool
    """Whether the cluster has any GPU that may be scheduled on."""
    queue: list[Asking]
    strict: bool
    head: str | None = None
    """The first job that had to wait."""
    held: int = 0
    started: int = 0
    _refused: dict[Demand, tuple[Reason, ...]] = field(default_factory=dict)
    """Demands that found no place in this round. Nothing frees within it, so they find none later on either."""

    _never: dict[Demand, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: QueuePolicy, snapshot: Snapshot, *, strict: bool, seed: int) -> QueueRound:
        """The beginning of a round: what is free, what everybody asks for, and who comes first."""
        residual = Residual.of(snapshot)
        demands = Demands(residual.topology)
        asking = [(job, demands.of(job, growth=policy.growth)) for job in snapshot.waiting]
        queue = policy.order(asking, residual.congestion())
        world = World.of(snapshot, residual, seed)
        before = world.with_residual(residual.clone())
        capacity = any(pool.gpus for pool in snapshot.cluster.pools.values())
        return cls(policy, world, before, capacity, queue, strict)

    def decide(self, job: WaitingJob, demand: Demand) -> Verdict:
        """The decision for the next job of the queue; a start takes what it needs from the residual."""
        job_id = job.spec.job_id
        if demand not in self._refused and not (self.strict and self.head):
            proposal = self.policy.place(demand, self.world)
            if proposal is not None:
                return self.start(job, proposal)
        never = self.never(job, demand)
        if never:
            return Reject(job_id, never)
        self.held += 1
        position = self.held
        if self.strict and self.head:
            return Hold(job_id, position, (self._behind_head(),))
        self.head = self.head or job_id
        if demand not in self._refused:
            self._refused[demand] = self.reasons(job, demand)
        return Hold(job_id, position, self._refused[demand])

    def start(self, job: WaitingJob, proposal: Proposal) -> Start | Hold:
        """Starts the job as proposed, if its checkpoint can reach it there now."""
        job_id, placement = job.spec.job_id, proposal.evaluation.placement
        transfers = granted_transfers(job.spec, job.state, placement, self.world.residual)
        if transfers is None:
            self.held += 1
            self.head = self.head or job_id
            lies = ", ".join(dict.fromkeys(span.region for span in job.state))
            detail = f"its checkpoint lies in {lies}, and no bandwidth is free from there to {placement.describe()}"
            return Hold(job_id, self.held, (Reason(ReasonCode.LINK_BANDWIDTH_EXHAUSTED, detail),))
        self.world.residual.take(placement, transfers)
        self.started += 1
        return Start(job_id, placement, proposal.evaluation.iteration_s, proposal.why, transfers)

    def reasons(self, job: WaitingJob, demand: Demand) -> tuple[Reason, ...]:
        """Why the job waits, with what it lacks; the first is the nearest cause."""
        if not self.capacity:
            return (Reason(ReasonCode.NO_CAPACITY_YET, "no node that takes jobs has a GPU at present"),)
        lacking = held_reasons(
            demand,
            self.world,
            self.policy.need_bps,
            crosses_regions=self.policy.crosses_regions,
            mixes_gpu_types=self.policy.mixes_gpu_types,
        )
        if self._never_on_cluster(job, demand):
            gone = (
                "it has run before, but the nodes that are here now could not hold it even if all were free"
            )
            return (Reason(ReasonCode.WAITING_FOR_NODE, gone), *lacking)
        if self.started and self._could_before(demand):
            taken = "the jobs before it in the queue took what it needed in this round"
            return (Reason(ReasonCode.BEHIND_IN_QUEUE, taken), *lacking)
        return lacking

    def never(self, job: WaitingJob, demand: Demand) -> tuple[Reason, ...]:
        """Why the job can never run on this cluster under this policy; empty if it may, or has run before."""
        if job.generation > 1 or job.require_regions or not self._never_on_cluster(job, demand):
            return ()
        return never_reasons(
            self._lasting(job, demand),
            self.world.residual.topology,
            crosses_regions=self.policy.crosses_regions,
            mixes_gpu_types=self.policy.mixes_gpu_types,
        )

    def _never_on_cluster(self, job: WaitingJob, demand: Demand) -> bool:
        """Whether the job could not be placed with everything free and no region cooling down."""
        if not self.capacity:
            return False
        demand = self._lasting(job, demand)
        never = self._never.get(demand)
        if never is None:
            known = _COULD_EVER.setdefault(demand, {})
            if self.policy.name not in known:
                empty = self.world.with_residual(Residual.empty(self.world.cluster))
                known[self.policy.name] = bool(self.policy.could_ever(demand, empty))
            never = self._never[demand] = not known[self.policy.name]
        return never

    def _lasting(self, job: WaitingJob, demand: Demand) -> Demand:
        """What the job asks once no region cools down any more."""
        if not job.avoid_regions:
            return demand
        calm = replace(job, avoid_regions=frozenset())
        return Demands(self.world.residual.topology).of(calm, growth=self.policy.growth)

    def _could_before(self, demand: Demand) -> bool:
        """Whether the job would have found a place before anybody started in this round."""
        return self.policy.place(demand, self.before) is not None

    def _behind_head(self) -> Reason:
        return Reason(
            ReasonCode.BLOCKED_BY_HEAD, f"strict order: {self.head} is before it in the queue and waits"
        )


_COULD_EVER: WeakKeyDictionary[Demand, dict[str, bool]] = WeakKeyDictionary()
"""By demand and policy: a demand belongs to one cluster, so the answer holds as long as the demand lives."""
