"""How the replay asks a policy: with a snapshot of everything, or of what changed.

A queueing policy is told what changes (`policies/standing.py`): of thousands of jobs that wait, hardly any can start
at an event. All others see a snapshot of the whole world and answer for everybody. Every plan is checked before it is
carried out, beside all jobs that hold anything of what it gives away.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Protocol

from scheduler import policies
from scheduler.check import check_plan
from scheduler.placement import Placement
from scheduler.plan import Hold, Plan, Reject, Start
from scheduler.policies import PolicyConfig, decide
from scheduler.policies.orders import in_order
from scheduler.policies.queueing import QueuePolicy
from scheduler.policies.standing import StandingQueue
from scheduler.reasons import Reason
from scheduler.replay.errors import ReplayError
from scheduler.snapshot import Snapshot, WaitingJob
from scheduler.units import format_time


class View(Protocol):
    """Shows the world as it is, to a policy and to the check."""

    def whole(self, now_s: float) -> Snapshot:
        """Everything that a policy may look at."""

    def around(self, now_s: float, waiting: Iterable[str], regions: Set[str]) -> Snapshot:
        """Of the waiting jobs these, and everybody else who holds or was promised anything in these regions; how many
        steps running ones have left may be out of date."""

    def prices(self, now_s: float) -> Snapshot:
        """The cluster and the prices alone."""


class Asker(Protocol):
    """Asks one policy. It is told what changes between two questions."""

    durations_s: list[float]
    """How long each answer took, in real time."""

    def waits(self, job: WaitingJob) -> None:
        """A job waits from now on, or waits as another than before."""

    def left(self, placement: Placement) -> None:
        """A job has left what it held, and nothing of it travels."""

    def unsettle(self) -> None:
        """Something else has changed."""

    def ask(self, now_s: float) -> Plan:
        """What is to be done now. Raises ReplayError where that is not legal."""

    def why(self, now_s: float) -> Mapping[str, tuple[Reason, ...]]:
        """Why those who still wait do; asked when nothing more can happen."""


def asker_of(config: PolicyConfig, view: View, price_times_s: Sequence[float]) -> Asker:
    """The way in which this policy is asked."""
    policy = policies.policy_of(config)
    if isinstance(policy, QueuePolicy) and not config.strict:
        return _AskStanding(policy, config, view, price_times_s)
    return _AskWhole(config, view)


class _AskWhole:
    def __init__(self, config: PolicyConfig, view: View) -> None:
        self.durations_s: list[float] = []
        self._config = config
        self._view = view
        self._held: dict[str, tuple[Reason, ...]] = {}

    def waits(self, job: WaitingJob) -> None:
        """The next snapshot shows it."""

    def left(self, placement: Placement) -> None:
        """The next snapshot shows it."""

    def unsettle(self) -> None:
        """The next snapshot shows it."""

    def ask(self, now_s: float) -> Plan:
        snapshot = self._view.whole(now_s)
        began_s = time.perf_counter()
        plan = decide(snapshot, self._config)
        self.durations_s.append(time.perf_counter() - began_s)
        _require_legal(snapshot, plan, self._config.name)
        self._held = {each.job_id: each.reasons for each in plan.decisions if isinstance(each, Hold)}
        return plan

    def why(self, now_s: float) -> Mapping[str, tuple[Reason, ...]]:
        return self._held


class _AskStanding:
    def __init__(
        self, policy: QueuePolicy, config: PolicyConfig, view: View, price_times_s: Sequence[float]
    ) -> None:
        self.durations_s: list[float] = []
        self._policy = policy
        self._config = config
        self._view = view
        self._price_times_s = price_times_s
        self._priced = -1
        """How many of the moments at which a price moves have passed."""
        self._queue: StandingQueue | None = None
        """None where it does not stand any more as it was left."""

    def waits(self, job: WaitingJob) -> None:
        if self._queue is not None:
            self._queue.add(job)

    def left(self, placement: Placement) -> None:
        if self._queue is not None:
            self._queue.give_back(placement)

    def unsettle(self) -> None:
        self._queue = None

    def ask(self, now_s: float) -> Plan:
        priced = bisect_right(self._price_times_s, now_s)
        decisions = self._decided(now_s, anew=priced != self._priced)
        self._priced = priced
        if not decisions:
            return Plan(0, ())
        regions = {region for each in decisions if isinstance(each, Start) for region in _touched(each)}
        snapshot = self._view.around(now_s, [each.job_id for each in decisions], regions)
        plan = in_order(snapshot, Plan(snapshot.version, decisions))
        _require_legal(snapshot, plan, self._config.name)
        return plan

    def _decided(self, now_s: float, *, anew: bool) -> tuple[Start | Reject, ...]:
        if self._queue is None:
            snapshot = self._view.whole(now_s)
            began_s = time.perf_counter()
            self._queue = StandingQueue(self._policy, self._config.seed, snapshot)
        else:
            prices = self._view.prices(now_s) if anew else None
            began_s = time.perf_counter()
            if prices is not None:
                self._queue.reprice(prices)
        decisions = self._queue.decide()
        self.durations_s.append(time.perf_counter() - began_s)
        return decisions

    def why(self, now_s: float) -> Mapping[str, tuple[Reason, ...]]:
        plan = decide(self._view.whole(now_s), self._config)
        return {each.job_id: each.reasons for each in plan.decisions if isinstance(each, Hold)}


def _touched(start: Start) -> Iterator[str]:
    """Every region in which a start uses anything, or up to which it uses a link."""
    yield from start.placement.regions
    for transfer in start.transfers:
        yield from (transfer.src, transfer.dst)


def _require_legal(snapshot: Snapshot, plan: Plan, policy: str) -> None:
    violations = check_plan(snapshot, plan)
    if violations:
        first = violations[0]
        raise ReplayError(
            f"policy {policy} made a plan that is not legal at {format_time(snapshot.now_s)}: "
            f"job {first.job_id or '-'}, rule {first.rule}: {first.detail}"
        )
