"""A queue that stands from one decision to the next, for a driver that tells what changed between them.

`QueuePolicy.decide` looks at every waiting job each time. Most cannot have become startable since: whether a policy
finds a place for a demand depends on the demand, on what is free in the regions that it may use and on the links
between them, and on prices. So a demand that was refused stays refused until one of these changes, and of the jobs of
one demand only the first can be next. What starts here is what starts in `decide` on a snapshot of the same moment (a
test compares the two); those who wait are not told why.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from scheduler.network import Residual
from scheduler.options import Demand, Demands
from scheduler.placement import Placement, Transfer
from scheduler.plan import Reject, Start
from scheduler.policies.proposal import Proposal
from scheduler.policies.queueing import QueuePolicy, QueueRound
from scheduler.policies.world import World
from scheduler.priority import Key, Scale, alone_s
from scheduler.snapshot import Snapshot, WaitingJob

_REMEMBERED_PROPOSALS: Final = 65_536


@dataclass(slots=True, eq=False)
class _Group:
    """The waiting jobs of one demand, by rank."""

    demand: Demand
    ranks: list[Key] = field(default_factory=list)
    jobs: list[WaitingJob] = field(default_factory=list)
    refused: bool = False
    """Nothing that it depends on has changed since no place was found for it."""

    def add(self, rank: Key, job: WaitingJob) -> None:
        at = bisect_left(self.ranks, rank)
        self.ranks.insert(at, rank)
        self.jobs.insert(at, job)

    def remove(self, rank: Key) -> None:
        at = bisect_left(self.ranks, rank)
        del self.ranks[at]
        del self.jobs[at]


class StandingQueue:
    """The waiting jobs of a queueing policy that is not strict, and what is free for them."""

    def __init__(self, policy: QueuePolicy, seed: int, snapshot: Snapshot) -> None:
        """Begins with what a snapshot holds."""
        self._policy = policy
        self._seed = seed
        self._residual = Residual.of(snapshot)
        topology = self._residual.topology
        self._pools = topology.pools_by_region
        self._demands = Demands(topology)
        self._groups: dict[Demand, _Group] = {}
        self._of_region: dict[str, list[_Group]] = {region: [] for region in topology.regions}
        self._open: dict[_Group, None] = {}
        """Those that have to be looked at; a dict for its order."""
        self._known: dict[str, tuple[_Group, Key, int]] = {}
        """Of each waiting job its group, its rank, and the number of its entry in `_longest`."""
        self._longest: list[tuple[float, int, str]] = []
        """A heap of the runs of jobs alone, negative; entries of jobs that have left go when they come to its top."""
        self._numbers = count()
        self._rejects: list[Reject] = []
        self._proposals: dict[tuple[Demand, tuple[int, ...]], Proposal | None] = {}
        self._congestion: float | None = None
        self.reprice(snapshot)
        for job in snapshot.waiting:
            self.add(job)

    def reprice(self, snapshot: Snapshot) -> None:
        """Prices are those of the snapshot from now on; its jobs are not looked at."""
        world = World.of(snapshot, self._residual, self._seed)
        capacity = any(pool.gpus for pool in snapshot.cluster.pools.values())
        self._round = QueueRound(self._policy, world, world, capacity, [], strict=False)
        self._proposals.clear()
        self._touch(self._residual.topology.regions)

    def add(self, job: WaitingJob) -> None:
        """A job waits from now on; in the stead of what it was, where it waited before."""
        job_id = job.spec.job_id
        if job_id in self._known:
            self._forget(job_id)
        demand = self._demands.of(job, growth=self._policy.growth)
        never = self._round.never(job, demand)
        if never:
            self._rejects.append(Reject(job_id, never))
            return
        group = self._groups.get(demand)
        if group is None:
            group = self._groups[demand] = _Group(demand)
            for region in demand.regions:
                self._of_region[region].append(group)
        rank, number = self._policy.order.rank(job), next(self._numbers)
        group.add(rank, job)
        self._known[job_id] = (group, rank, number)
        if self._policy.order.relative:
            heappush(self._longest, (-alone_s(job, demand), number, job_id))
        if not group.refused:
            self._open[group] = None

    def give_back(self, placement: Placement, transfers: Iterable[Transfer] = ()) -> None:
        """A job that held this has left."""
        transfers = tuple(transfers)
        self._residual.give_back(placement, transfers)
        self._changed(placement, transfers)

    def decide(self) -> tuple[Start | Reject, ...]:
        """Who starts now, in order, and who never can; both are forgotten, and what starts has taken what it needs."""
        rejects, self._rejects = self._rejects, []
        return (*rejects, *(self._starts() if self._open else ()))

    def _starts(self) -> list[Start]:
        scale = self._scale()
        looked_at = list(self._open)
        queues = [self._in_order(group, scale) for group in looked_at]
        heads: list[tuple[Key, int, WaitingJob]] = []
        for number, queue in enumerate(queues):
            heads.extend((key, number, job) for key, job in _first(queue))
        heapify(heads)
        starts: list[Start] = []
        blocked: set[int] = set()
        while heads:
            _, number, job = heappop(heads)
            group = looked_at[number]
            proposal = self._place(group.demand)
            if proposal is None:
                group.refused = True
                self._open.pop(group, None)
                continue
            verdict = self._round.start(job, proposal)
            if isinstance(verdict, Start):
                starts.append(verdict)
                self._changed(verdict.placement, verdict.transfers)
            else:
                blocked.add(number)  # its state cannot travel now; that is looked at again each time
            for key, following in _first(queues[number]):
                heappush(heads, (key, number, following))
        for start in starts:
            self._forget(start.job_id)
        for number, group in enumerate(looked_at):
            if not group.jobs and number not in blocked:
                self._open.pop(group, None)
        return starts

    def _in_order(self, group: _Group, scale: Scale) -> Iterator[tuple[Key, WaitingJob]]:
        """The jobs of a group by key: by rank, and those that tie in all but arrival by that."""
        order = self._policy.order
        if not order.relative:
            yield from zip(group.ranks, group.jobs, strict=True)
            return
        tied: list[tuple[Key, WaitingJob]] = []
        for job in group.jobs:
            key = order.key(job, group.demand, scale)
            if tied and key[:-2] != tied[0][0][:-2]:
                yield from sorted(tied, key=lambda each: each[0])
                tied = []
            tied.append((key, job))
        yield from sorted(tied, key=lambda each: each[0])

    def _scale(self) -> Scale:
        if not self._policy.order.relative:
            return Scale(0.0, 0.0, 0.0)
        longest = self._longest
        while longest and self._known.get(longest[0][2], (None, None, -1))[2] != longest[0][1]:
            heappop(longest)
        if self._congestion is None:
            self._congestion = self._residual.congestion()
        widest_bps = max(
            (group.demand.rate_bps for group in self._groups.values() if group.jobs), default=0.0
        )
        return Scale(-longest[0][0] if longest else 0.0, widest_bps, self._congestion)

    def _place(self, demand: Demand) -> Proposal | None:
        """As the policy does; inside one region nothing but its free GPUs matters while prices stand."""
        if len(demand.regions) != 1:
            return self._policy.place(demand, self._round.world)
        free = tuple(self._residual.free_gpus(pool) for pool in self._pools[demand.regions[0]])
        if (demand, free) not in self._proposals:
            if len(self._proposals) >= _REMEMBERED_PROPOSALS:
                self._proposals.clear()
            self._proposals[demand, free] = self._policy.place(demand, self._round.world)
        return self._proposals[demand, free]

    def _changed(self, placement: Placement, transfers: tuple[Transfer, ...]) -> None:
        if placement.cuts or transfers:
            self._congestion = None
        regions = {segment.region for segment in placement.segments}
        for transfer in transfers:
            regions |= {transfer.src, transfer.dst}
        self._touch(regions)

    def _touch(self, regions: Iterable[str]) -> None:
        for region in regions:
            for group in self._of_region[region]:
                group.refused = False
                if group.jobs:
                    self._open[group] = None

    def _forget(self, job_id: str) -> None:
        group, rank, _ = self._known.pop(job_id)
        group.remove(rank)


def _first(queue: Iterator[tuple[Key, WaitingJob]]) -> Iterator[tuple[Key, WaitingJob]]:
    """The next of a queue, if there is one."""
    for each in queue:
        yield each
        return
