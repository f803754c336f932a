"""A policy that changes running jobs by an act on horizon's board: the rivals that horizon is told apart from.

They stop, resize and move jobs at the same true cost as horizon does, and differ in what they decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from scheduler.objective import Objective
from scheduler.plan import Decision, Move, Plan, Preempt, Start
from scheduler.policies.horizon.answer import decisions
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.policies.horizon.policy import HorizonPolicy
from scheduler.policies.horizon.work import Option, Seat, Work, seat_of
from scheduler.policies.narrowed import grown
from scheduler.policies.proposal import Proposal, plural
from scheduler.policies.queueing import QueuePolicy, QueueRound
from scheduler.restart import granted_transfers, restart_s
from scheduler.snapshot import Snapshot

TIME_ALONE = HorizonConfig(
    electricity_weight=0.0,
    egress_weight=0.0,
    crowding=0.0,
    estimate_sigma=0.0,
    aging=0.0,
    patience_s=math.inf,
)
"""Nothing but completion times count, as jobs declare them, and nobody has a reservation; what it takes to move a job
is horizon's."""


@dataclass(frozen=True, slots=True)
class ElasticPolicy:
    """`act` changes a board. `verdicts` is the queueing policy that tells why a job waits."""

    name: str
    meaning: str
    verdicts: QueuePolicy
    act: Callable[[Board], None]
    replans: bool = True

    def decide(self, snapshot: Snapshot, *, strict: bool, seed: int) -> Plan:
        """A decision for every waiting job, and for running ones that are to change."""
        round_ = QueueRound.of(self.verdicts, snapshot, strict=strict, seed=seed)
        planner = HorizonPolicy(self.name, self.meaning, self.verdicts, TIME_ALONE)
        board, refused = planner.board(snapshot, seed, Objective(), round_)
        growth = self.verdicts.growth
        if growth < 1.0:
            for job_id, work in board.works.items():
                board.works[job_id] = replace(work, demand=grown(work.demand, growth))
        self.act(board)
        round_.world = board.world
        gone = {each.job_id for each in refused}
        waiting = {job.spec.job_id: job for job in snapshot.waiting if job.spec.job_id not in gone}
        made = (self._told(each) for each in decisions(board, waiting, round_))
        return Plan(snapshot.version, (*refused, *made))

    def _told(self, decision: Decision) -> Decision:
        """The decision with a sentence of this policy instead of horizon's."""
        match decision:
            case Start(placement=placement) | Move(placement=placement):
                where = f"{plural(placement.stages, 'stage')} over {placement.describe()}"
                return replace(decision, why=f"{where}. {self.meaning}")
            case Preempt():
                return replace(decision, why=f"Others get its place; it goes on afterwards. {self.meaning}")
            case _:
                return decision


def option_of(work: Work, board: Board, proposal: Proposal | None, seat: Seat | None) -> Option | None:
    """What a proposed place comes to for a job that leaves `seat` (None: it waits), scored by its time alone.

    None without a proposal, or if the state of the job cannot get there now.
    """
    if proposal is None:
        return None
    spec, placement = work.spec, proposal.evaluation.placement
    stepped = seat is not None and seat.ready_s <= board.now_s
    state = seat.state if seat is not None and stepped else work.state
    transfers = granted_transfers(spec, state, placement, board.residual)
    if transfers is None:
        return None
    before_s = board.stopping_s(seat) if seat is not None else 0.0
    if stepped or work.has_state:
        before_s += restart_s(spec, board.cluster, placement, transfers)
    found = seat_of(spec, board.cluster, proposal.evaluation, board.now_s + before_s, transfers)
    run_s = board.remaining_s(work, found)
    return Option(run_s, found, run_s, before_s)


def is_settled(work: Work, seat: Seat, board: Board) -> bool:
    """Whether a job may be stopped, and has stepped for a while."""
    return work.movable and seat.ready_s + board.config.settle_s <= board.now_s
