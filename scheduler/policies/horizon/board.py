"""A decision in the making: which jobs stand where, what is free, and what everything is worth."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from scheduler.cluster import Cluster
from scheduler.network import Residual
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.policies.horizon.ground import Free, Network, Prices
from scheduler.policies.horizon.weights import Weights
from scheduler.policies.horizon.work import Seat, Work
from scheduler.policies.world import World
from scheduler.restart import state_of, stop_s


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
    _free: Free | None = field(default=None)

    @property
    def cluster(self) -> Cluster:
        return self.world.cluster

    @property
    def residual(self) -> Residual:
        return self.world.residual

    @property
    def free(self) -> Free:
        """What is free now, as arrays."""
        if self._free is None:
            self._free = Free.of(self.residual)
        return self._free

    def clone(self) -> Board:
        """An independent copy, to try something on."""
        world = self.world.with_residual(self.residual.clone())
        return replace(self, world=world, works=dict(self.works), seats=dict(self.seats))

    def advance(self, to_s: float) -> None:
        """Let time pass: state that has arrived by then no longer takes bandwidth."""
        for seat in self.seats.values():
            if seat.transfers and self.now_s < seat.ready_s <= to_s:
                self.residual.give_back_transfers(seat.transfers)
                self._free = None
        self.now_s = to_s

    def release(self, job_id: str) -> Seat:
        """Take a job off its seat."""
        seat = self.seats.pop(job_id)
        travelling = seat.transfers if seat.ready_s > self.now_s else ()
        self.residual.give_back(seat.placement, travelling)
        self._free = None
        return seat

    def place(self, job_id: str, seat: Seat) -> None:
        """Put a job on a seat that is free."""
        travelling = seat.transfers if seat.ready_s > self.now_s else ()
        self.residual.take(seat.placement, travelling)
        self.seats[job_id] = seat
        self._free = None

    def evict(self, job_id: str) -> Seat:
        """Take a job off its seat, to wait: its state lies where it stood, if it has stepped there."""
        seat = self.release(job_id)
        if seat.ready_s <= self.now_s:
            work = self.works[job_id]
            state = state_of(work.spec, seat.placement)
            self.works[job_id] = replace(work, has_state=True, state=state, waits_since_s=self.now_s)
        return seat

    def stopping_s(self, work: Work, seat: Seat) -> float:
        """How long it takes a job to leave a seat; 0 where it has not begun to step."""
        return 0.0 if seat.ready_s > self.now_s else stop_s(work.spec, self.cluster, seat.placement)

    def remaining_s(self, work: Work, seat: Seat) -> float:
        """From now until a job ends that stays on a seat."""
        return max(0.0, seat.ready_s - self.now_s) + work.steps * seat.iteration_s
