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
from scheduler.restart import stop_s


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
        return replace(self, world=world, seats=dict(self.seats), _free=self._free)

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

    def stopping_s(self, work: Work) -> float:
        """How long it takes a job that runs now to leave its seat; 0 for one that waits or has not begun to step."""
        seat = work.seat
        if seat is None or seat.ready_s > self.now_s:
            return 0.0
        return stop_s(work.spec, self.cluster, seat.placement)

    def remaining_s(self, work: Work, seat: Seat) -> float:
        """From now until a job ends that stays on a seat."""
        return max(0.0, seat.ready_s - self.now_s) + work.steps * seat.iteration_s
