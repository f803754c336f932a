"""A decision in the making: which jobs stand where, what is free, and what everything is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np

from scheduler.cluster import Cluster
from scheduler.cost import SECONDS_PER_HOUR
from scheduler.network import Residual
from scheduler.options import Demand
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.policies.horizon.ground import Floats, Integers, Network, Prices, Room, schedulable_gpus
from scheduler.policies.horizon.ladder import ladders_of
from scheduler.policies.horizon.weights import Weights, tempered
from scheduler.policies.horizon.work import Option, Seat, Work
from scheduler.policies.world import World

FASTEST: Final = Weights(0.0, 0.0, 0.0)
"""Nothing but time counts."""
CHEAPEST: Final = Weights(0.0, 1e9, 1e9)
"""Hardly anything but dollars counts."""


class KeptPlace(Protocol):
    """A place that is kept for a job, as the board sees it: `reservation.py` has it. It follows what happens to all
    others."""

    @property
    def work(self) -> Work:
        """The job that it is kept for."""
        ...

    @property
    def seat(self) -> Seat:
        """Where that job will begin."""
        ...

    @property
    def begins_s(self) -> float:
        """When it will, by forecast."""
        ...

    def clone(self) -> KeptPlace:
        """An independent copy."""
        ...

    def allows(self, board: Board, work: Work, seat: Seat) -> bool:
        """Whether the job still begins when it would if another one, which has no seat now, takes this one."""
        ...

    def beside(self, board: Board) -> Board:
        """A board on which only that is free which is free now and will be beside the job."""
        ...

    def place(self, board: Board, work: Work, seat: Seat) -> KeptPlace | None:
        """The place kept once another job has taken a seat."""
        ...

    def release(self, job_id: str) -> None:
        """Another job leaves its seat."""
        ...


@dataclass(slots=True)
class Board:
    """Mutable: moves are tried on it. `seats` are the jobs that run or are to run, `waiting` all others, by id."""

    now_s: float
    world: World
    prices: Prices
    network: Network
    weights: Weights
    config: HorizonConfig
    works: dict[str, Work]
    seats: dict[str, Seat]
    room: Room
    shares: Mapping[str, float] = field(default_factory=dict)
    """Weight of each tenant that has one."""
    lens: Weights | None = None
    """Weights for every job, in the place of those that each has by itself."""
    kept: KeptPlace | None = None
    """The place kept for a job that has waited too long."""
    found: dict[tuple[object, ...], Option | None] = field(default_factory=dict)
    """The best options that were looked for on this board and its copies, by all that they depend on."""
    _weights: dict[str, Weights] = field(default_factory=dict)
    _allowed: dict[Demand, Integers] = field(default_factory=dict)
    _begins: dict[Demand, Floats] = field(default_factory=dict)
    _asked: tuple[dict[str, int], int, int] | None = field(default=None)
    """GPUs held or asked for: by job, all of them, and how many there are; as it was when it was first looked at."""

    @property
    def cluster(self) -> Cluster:
        return self.world.cluster

    @property
    def residual(self) -> Residual:
        return self.world.residual

    def allowed(self, demand: Demand) -> Integers:
        """By region: 1 where a job with that demand may stand, else 0."""
        found = self._allowed.get(demand)
        if found is None:
            allowed = frozenset(demand.regions)
            found = np.array([int(each in allowed) for each in self.room.index], dtype=np.int64)
            self._allowed[demand] = found
        return found

    def begin_usd(self, work: Work) -> Floats:
        """By region: what it costs to bring the job's data sets there; infinite where its chain may not begin."""
        found = self._begins.get(work.demand)
        if found is None:
            begins = work.demand.begins
            found = np.array([begins.get(each, np.inf) for each in self.room.index])
            self._begins[work.demand] = found
        if not work.spec.data:
            return found
        begin = found.copy()
        for region in work.brought & work.demand.begins.keys():
            begin[self.room.index[region]] = 0.0
        return begin

    def weights_of(self, work: Work) -> Weights:
        """What seconds and dollars are worth to each other for one job, beside all the others."""
        if self.lens is not None:
            return self.lens
        asked, total, gpus = self._gpus_wanted()
        pressure = (total - asked.get(work.job_id, 0)) / max(1, gpus)
        found = self._weights.get(work.job_id)
        if found is None:
            under = self.weights.under(pressure, self.config)
            found = self._weights[work.job_id] = tempered(
                under,
                ladders_of(work.demand, self.cluster),
                work.steps,
                work.cut_bytes_per_step,
                self.prices,
                self.network,
                self.config,
            )
        return found

    def pressure(self) -> float:
        """Part of the GPUs that is held or asked for; above 1 where not all can have what they ask for at least."""
        _, total, gpus = self._gpus_wanted()
        return total / max(1, gpus)

    def _gpus_wanted(self) -> tuple[dict[str, int], int, int]:
        if self._asked is None:
            asked = {job_id: self._gpus_asked(each) for job_id, each in self.works.items()}
            self._asked = (asked, sum(asked.values()), schedulable_gpus(self.cluster))
        return self._asked

    def _gpus_asked(self, work: Work) -> int:
        """GPUs that a job holds, or the least that it waits for."""
        seat = self.seats.get(work.job_id)
        if seat is not None:
            return seat.placement.gpus
        least = min((each.stage_counts.floor for each in work.demand.candidates), default=0)
        return least * work.demand.gpus_per_stage

    def clone(self) -> Board:
        """An independent copy, to try something on."""
        world = self.world.with_residual(self.residual.clone())
        return replace(
            self,
            world=world,
            works=dict(self.works),
            seats=dict(self.seats),
            room=self.room.clone(),
            _weights=dict(self._weights),
            kept=None if self.kept is None else self.kept.clone(),
        )

    def emptied(self) -> Board:
        """The same jobs with everything free."""
        residual = Residual.empty(self.cluster)
        world, room = self.world.with_residual(residual), Room.of(residual)
        return replace(self, world=world, seats={}, room=room, found={}, _weights={}, _asked=None, kept=None)

    def decide_by(self, config: HorizonConfig, weights: Weights) -> None:
        """From now on everything is worth what these say."""
        self.config, self.weights = config, weights
        self._weights.clear()

    def advance(self, to_s: float) -> None:
        """Let time pass: state that has arrived by then no longer takes bandwidth."""
        for seat in self.seats.values():
            if seat.transfers and self.now_s < seat.ready_s <= to_s:
                self.residual.give_back_transfers(seat.transfers)
                self.room.move(None, seat.transfers, +1)
        self.now_s, self._asked = to_s, None
        self._weights.clear()

    def release(self, job_id: str) -> Seat:
        """Take a job off its seat."""
        seat = self.seats.pop(job_id)
        travelling = seat.transfers if seat.ready_s > self.now_s else ()
        self.residual.give_back(seat.placement, travelling)
        self.room.move(seat.placement, travelling, +1)
        if self.kept is not None:
            self.kept.release(job_id)
        return seat

    def holds(self, seat: Seat) -> bool:
        """Whether all that a seat needs is free."""
        return self.room.holds(seat.placement, seat.transfers if seat.ready_s > self.now_s else ())

    def place(self, job_id: str, seat: Seat) -> None:
        """Put a job on a seat that is free."""
        travelling = seat.transfers if seat.ready_s > self.now_s else ()
        self.residual.take(seat.placement, travelling)
        self.room.move(seat.placement, travelling, -1)
        self.seats[job_id] = seat
        if self.kept is not None:
            is_its_own = job_id == self.kept.work.job_id
            self.kept = None if is_its_own else self.kept.place(self, self.works[job_id], seat)

    def evict(self, job_id: str) -> Seat:
        """Take a job off its seat, to wait: its state lies where it stood, if it has stepped there."""
        seat = self.release(job_id)
        if seat.ready_s <= self.now_s:
            work = self.works[job_id]
            self.works[job_id] = replace(work, has_state=True, state=seat.state, waits_since_s=self.now_s)
        return seat

    def stopping_s(self, seat: Seat) -> float:
        """How long it takes a job to leave a seat; 0 where it has not begun to step."""
        return 0.0 if seat.ready_s > self.now_s else seat.storage_s

    def holding_usd(self, seat: Seat, duration_s: float) -> float:
        """What the GPUs of a seat cost from now on: electricity where they are owned, rent where they are rented."""
        rent = seat.rent_usd_per_hour * duration_s / SECONDS_PER_HOUR
        return self.prices.usd(seat.draw_kw, self.now_s, duration_s) + rent

    def remaining_s(self, work: Work, seat: Seat) -> float:
        """From now until a job ends that stays on a seat."""
        return max(0.0, seat.ready_s - self.now_s) + work.steps * seat.iteration_s
