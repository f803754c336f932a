"""A policy that starts, stops and moves jobs at random, within the rules: what the replay must survive."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import groupby, pairwise

import pytest

from scheduler import policies
from scheduler.evaluate import Evaluation, evaluate
from scheduler.job import Elasticity
from scheduler.network import Residual
from scheduler.objective import Objective
from scheduler.placement import Cut, Segment
from scheduler.plan import Decision, Hold, Move, Plan, Preempt, Start
from scheduler.profile import Workload, can_have
from scheduler.reasons import Reason, ReasonCode
from scheduler.restart import granted_transfers, state_after_stop
from scheduler.snapshot import RunningJob, Snapshot, StateSpan, WaitingJob

WHY = "the dice said so"


@dataclass(frozen=True, slots=True)
class Restless:
    """With these odds at every decision: start a waiting job, preempt a running one, move it."""

    name: str = "restless"
    meaning: str = "At random."
    start: float = 0.7
    preempt: float = 0.1
    move: float = 0.2
    replans: bool = True

    def decide(
        self, snapshot: Snapshot, *, strict: bool, seed: int, objective: Objective | None = None
    ) -> Plan:
        return _Round(self, snapshot, random.Random(f"{seed}/{snapshot.version}")).plan()


def registered(patch: pytest.MonkeyPatch, policy: Restless) -> str:
    """Makes the policy known by its name for as long as the patch lasts."""
    patch.setattr(policies, "POLICIES", {**policies.POLICIES, policy.name: policy})
    return policy.name


class _Round:
    def __init__(self, policy: Restless, snapshot: Snapshot, dice: random.Random) -> None:
        self.policy, self.snapshot, self.dice = policy, snapshot, dice
        self.residual = Residual.after_stops(snapshot)

    def plan(self) -> Plan:
        decisions: list[Decision] = []
        for running in sorted(self.snapshot.running, key=lambda each: each.spec.job_id):
            decision = self.change(running)
            if decision is not None:
                decisions.append(decision)
        waiting = sorted(self.snapshot.waiting, key=lambda each: each.spec.job_id)
        self.dice.shuffle(waiting)
        held = 0
        for job in waiting:
            start = self.start(job)
            held += start is None
            reason = Reason(ReasonCode.BEHIND_IN_QUEUE, WHY)
            decisions.append(start or Hold(job.spec.job_id, held, (reason,)))
        self.dice.shuffle(decisions)
        return Plan(self.snapshot.version, tuple(decisions))

    def change(self, job: RunningJob) -> Preempt | Move | None:
        if job.stopping or job.spec.elasticity is Elasticity.NONE:
            return None
        throw, placement = self.dice.random(), job.allocation.placement
        if throw < self.policy.preempt:
            self.residual.give_back(placement, job.transfers)
            return Preempt(job.spec.job_id, WHY)
        if throw < self.policy.preempt + self.policy.move:
            self.residual.give_back(placement, job.transfers)
            keeps = None if job.spec.elasticity is Elasticity.RESIZE else placement.stages
            found = self.place(
                WaitingJob(job.spec, job.remaining_steps, stages=keeps, avoid_regions=job.avoid_regions),
                state_after_stop(job, self.snapshot.now_s),
            )
            if found is not None:
                evaluation, transfers = found
                return Move(job.spec.job_id, evaluation.placement, evaluation.iteration_s, WHY, transfers)
            self.residual.take(placement, job.transfers)
        return None

    def start(self, job: WaitingJob) -> Start | None:
        if self.dice.random() >= self.policy.start:
            return None
        found = self.place(job, job.state)
        if found is None:
            return None
        evaluation, transfers = found
        return Start(job.spec.job_id, evaluation.placement, evaluation.iteration_s, WHY, transfers)

    def place(self, job: WaitingJob, state: tuple[StateSpan, ...]):
        """A random placement that fits, taken from what is free; None if a few tries find none."""
        for _ in range(6):
            evaluation = self.proposal(job)
            if evaluation is None or not evaluation.fits:
                continue
            transfers = granted_transfers(job.spec, state, evaluation.placement, self.residual)
            if transfers is None:
                continue
            self.residual.take(evaluation.placement, transfers)
            return evaluation, transfers
        return None

    def proposal(self, job: WaitingJob) -> Evaluation | None:
        spec, cluster, dice = job.spec, self.snapshot.cluster, self.dice
        size = spec.parallelism.gpus_per_stage
        regions = sorted(set(cluster.regions) - job.avoid_regions)
        if not regions:
            return None
        chosen = dice.sample(regions, dice.randint(1, min(3, len(regions))))
        pools = [(name, pool.gpu_type) for name in chosen for pool in cluster.pools_of(name)]
        room = [(pool, self.residual.free_gpus(pool) // size) for pool in pools]
        room = [(pool, slots) for pool, slots in room if slots]
        total = sum(slots for _, slots in room)
        least = max(spec.parallelism.stages_min or 1, len(room))
        most = min(spec.parallelism.stages_max or spec.model.layers, spec.model.layers, total)
        if not room or least > most:
            return None
        stages = job.stages or dice.randint(least, most)
        if not len(room) <= stages <= total or not can_have(Workload.of(spec), stages):
            return None
        shares = [1] * len(room)
        while sum(shares) < stages:
            index = dice.randrange(len(room))
            shares[index] += shares[index] < room[index][1]
        segments = tuple(Segment(*pool, share, size) for (pool, _), share in zip(room, shares, strict=True))
        cuts = self.cuts(segments)
        return None if cuts is None else evaluate(spec, cluster, segments, cuts)

    def cuts(self, segments: tuple[Segment, ...]) -> tuple[Cut, ...] | None:
        chain = [name for name, _ in groupby(each.region for each in segments)]
        latency_s = self.residual.topology.pair_latency_s
        cuts = []
        for a, b in pairwise(chain):
            # A part of what is there, so that the two cuts of a region in the middle fit through its access.
            granted = int(self.residual.pair_bps(a, b) * self.dice.uniform(0.05, 0.45))
            if granted < 1e6:
                return None
            cuts.append(Cut(a, b, granted, latency_s[a, b]))
        return tuple(cuts)
