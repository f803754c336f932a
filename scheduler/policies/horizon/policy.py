"""horizon: every option of a job scored in seconds, over jobs that wait and jobs that run (docs/horizon.md)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from scheduler.cluster import Cluster
from scheduler.job import Elasticity
from scheduler.network import Residual
from scheduler.objective import Objective
from scheduler.options import Demand, Demands
from scheduler.plan import Decision, Hold, Plan
from scheduler.policies.horizon.acts import keep_place
from scheduler.policies.horizon.answer import decisions, rejected
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.policies.horizon.ground import Network, Prices, Room, schedulable_gpus
from scheduler.policies.horizon.limits import bind
from scheduler.policies.horizon.narrowing import as_configured
from scheduler.policies.horizon.portfolio import best_way, cheapest_way
from scheduler.policies.horizon.ways import elastic
from scheduler.policies.horizon.weights import sample, weights_of
from scheduler.policies.horizon.work import Seat, Work, running_work, waiting_work
from scheduler.policies.queueing import QueuePolicy, QueueRound
from scheduler.policies.world import World
from scheduler.restart import state_of
from scheduler.snapshot import RunningJob, Snapshot, WaitingJob

_HAIR: Final = 0.002
"""Part of a job's time that nobody would miss."""


@dataclass(frozen=True, slots=True)
class HorizonPolicy:
    """The policy under one configuration. `verdicts` is the queueing policy that tells why a job waits."""

    name: str
    meaning: str
    verdicts: QueuePolicy
    config: HorizonConfig = field(default_factory=HorizonConfig)
    replans: bool = True
    """It changes running jobs, so it is asked when prices move as well."""

    def decide(self, snapshot: Snapshot, *, strict: bool, seed: int, objective: Objective) -> Plan:
        """A decision for every waiting job, and for running ones where a change pays."""
        round_ = QueueRound.of(self.verdicts, snapshot, strict=strict, seed=seed)
        waiting = {job.spec.job_id: job for job in snapshot.waiting}
        board, refused = self.board(snapshot, seed, objective, round_)
        board.shares = snapshot.shares
        judged = bind(board, snapshot)
        refused += judged.rejected
        keep_place(board)
        if len(board.works) > self.config.rollout_jobs:
            elastic(board)
        elif objective.cheapest_within is not None:
            board = cheapest_way(board, objective.cheapest_within)
        else:
            board = best_way(board, objective.weight_jct)
        for job_id in (*(each.job_id for each in refused), *judged.held):
            del waiting[job_id]
        round_.world = board.world
        made = decisions(board, waiting, round_)
        held = [
            Hold(job_id, position, (reason,))
            for position, (job_id, reason) in enumerate(judged.held.items(), start=round_.held + 1)
        ]
        return Plan(snapshot.version, (*refused, *judged.stopped, *made, *held))

    def board(
        self, snapshot: Snapshot, seed: int, objective: Objective, round_: QueueRound
    ) -> tuple[Board, list[Decision]]:
        """The board before any move, and the refusals of jobs that can never run."""
        residual = Residual.after_stops(snapshot)
        demands = Demands(residual.topology)
        config = _thrifty(self.config, objective)
        sigma = config.estimate_sigma
        works: dict[str, Work] = {}
        seats: dict[str, Seat] = {}
        refused: list[Decision] = []
        for job in sorted(snapshot.waiting, key=lambda each: each.spec.job_id):
            named = job.spec.parallelism.named_stages
            demand = as_configured(demands.of(job), named, job.state, config)
            work = waiting_work(job, demand, sigma)
            refusal = rejected(job.spec.job_id, job, work, round_)
            if refusal is not None:
                refused.append(refusal)
            else:
                works[job.spec.job_id] = work
        for running in sorted(snapshot.running, key=lambda each: each.spec.job_id):
            if running.stopping or not _stands_on(running, snapshot.cluster):
                continue  # what runs outside the cluster that is planned on stays as it is
            demand = _demand_of(running, demands, config)
            work = running_work(running, demand, snapshot.cluster, sigma)
            if work.seat is not None:
                works[work.job_id], seats[work.job_id] = work, work.seat
        prices = Prices.of(snapshot, residual.topology)
        if not config.forecasts:
            prices = prices.as_now()
        network = Network.of(residual.topology)
        kinds = [(work.demand, work.steps) for work in works.values()]
        kinds += [(demands.of(WaitingJob(spec, 1)), float(spec.training.steps)) for spec in snapshot.recent]
        price, egress = prices.mean(), network.mean_egress_usd_per_gb
        found = (sample(demand, steps, snapshot.cluster, price, egress) for demand, steps in kinds)
        gpus = schedulable_gpus(snapshot.cluster)
        weights = weights_of(
            (each for each in found if each is not None),
            max(0, len(works) - 1),
            gpus,
            objective,
            config,
        )
        world = World.of(snapshot, residual, seed)
        room = Room.of(residual)
        board = Board(snapshot.now_s, world, prices, network, weights, config, works, seats, room)
        return board, refused


def _thrifty(config: HorizonConfig, objective: Objective) -> HorizonConfig:
    """Where the cheapest within a part of the fastest is asked for, no saving is worth more of a job's time than that,
    in an idle cluster as well; and of what is equally fast the cheapest is always worth something."""
    if objective.cheapest_within is None:
        return config
    part = max(objective.cheapest_within, _HAIR)
    return replace(config, most_slower=part, most_slower_egress=part, idle_part=1.0)


def _stands_on(running: RunningJob, cluster: Cluster) -> bool:
    """Whether the regions and GPU types of a running job are still part of the cluster."""
    return all(
        segment.region in cluster.regions and segment.gpu_type in cluster.gpu_types
        for segment in running.allocation.placement.segments
    )


def _demand_of(running: RunningJob, demands: Demands, config: HorizonConfig) -> Demand:
    """What the running job would ask for if it had to start again."""
    spec, placement = running.spec, running.allocation.placement
    kept = placement.stages if spec.elasticity is not Elasticity.RESIZE else None
    demand = demands.of(WaitingJob(spec, 1, stages=kept, avoid_regions=running.avoid_regions))
    named = spec.parallelism.named_stages
    return as_configured(demand, named, state_of(spec, placement), config)
