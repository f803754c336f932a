"""What a rank runs next: the whole judgement of an executor, without a clock, threads or tensors.

It begins with one iteration; `extend` tells of another that follows it before the pipeline is empty, `close` that none
does. Where results are is told to it: `deliver_input` and `deliver_gradient` for what came from another rank, `ran` for
what this rank has computed. `begin` chooses the computation to run now; None while the rank has to wait.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from types import MappingProxyType

from agents.worker.executor.rank_plan import Action, Op, RankPlan


class Decision(ABC):
    """What a rank has run since its pipeline was empty, and what it could. Micro-batches are numbered on from there."""

    def __init__(self, plan: RankPlan) -> None:
        self._plan = plan
        self._missing: dict[Action, int] = {}
        """How many results each computation that has not begun still waits for."""
        self._takes_gradient: dict[tuple[int, int], Op] = {
            (stage, micro_batch): op for stage, op, micro_batch in plan.computations if op in ("B", "I")
        }
        """By stage and micro-batch of an iteration."""
        self.iterations = 0
        """So many are known of."""
        self.closed = False
        """Whether no other follows."""
        self.extend()

    def extend(self) -> None:
        """Another iteration follows."""
        actions = tuple(self._plan.iteration(self.iterations))
        for action in actions:
            self._missing[action] = self._needed(action)
        self._know(actions)
        self.iterations += 1

    def close(self) -> None:
        """No other follows."""
        self.closed = True

    @property
    def undecided(self) -> bool:
        """Whether it cannot choose before it is told if another iteration follows."""
        return not self.closed and not self._left()

    @property
    def finished(self) -> bool:
        """Whether everything has begun."""
        return self.closed and not self._left()

    def begin(self) -> Action | None:
        """What to run now. The rank runs it, and then tells `ran`."""
        action = self._choose()
        if action is not None:
            del self._missing[action]
        return action

    @abstractmethod
    def _know(self, actions: Iterable[Action]) -> None:
        """The computations of the next iteration."""

    @abstractmethod
    def _choose(self) -> Action | None:
        """What is ready and comes first; it will be run."""

    @abstractmethod
    def _left(self) -> bool:
        """Whether there is anything yet to choose of what it knows."""

    def deliver_input(self, stage: int, micro_batch: int) -> None:
        """The input of a forward is there."""
        self._give(Action(stage, "F", micro_batch))

    def deliver_gradient(self, stage: int, micro_batch: int) -> None:
        """The gradient of a stage's output is there."""
        op = self._takes_gradient[stage, micro_batch % self._plan.micro_batches]
        self._give(Action(stage, op, micro_batch))

    def ran(self, action: Action) -> None:
        """What `begin` gave has run, and what comes of it is there for the other stages of this rank."""
        stage, op, micro_batch = action
        if op == "F":
            self.deliver_gradient(stage, micro_batch)  # the other thing that its backward waits for
            if self._plan.has(stage + 1):
                self.deliver_input(stage + 1, micro_batch)
        elif op != "W" and self._plan.has(stage - 1):
            self.deliver_gradient(stage - 1, micro_batch)
        if op == "I":
            self._give(Action(stage, "W", micro_batch))

    def _needed(self, action: Action) -> int:
        if action.op in ("B", "I"):
            return 1 if action.stage == self._plan.last_stage else 2
        return 0 if action.op == "F" and action.stage == 0 else 1

    def _give(self, action: Action) -> None:
        """`action` has one more of the results that it needs."""
        self._missing[action] -= 1


class StrictDecision(Decision):
    """Keeps to the order of the plan."""

    def __init__(self, plan: RankPlan) -> None:
        self._order: deque[Action] = deque()
        super().__init__(plan)

    def close(self) -> None:
        super().close()
        self._order.extend(self._plan.order_to_end(self.iterations))

    def _know(self, actions: Iterable[Action]) -> None:
        self._order.extend(self._plan.order_of(self.iterations))

    def _choose(self) -> Action | None:
        if not self._order or self._missing[self._order[0]]:
            return None
        return self._order.popleft()

    def _left(self) -> bool:
        return bool(self._order)


class HintDecision(Decision):
    """Takes what is ready first in the order of the plan (RRFP, arXiv 2605.18750).

    A forward is admitted while its stage has fewer micro-batches in flight than its cap: from F to the end of B or W.
    As what a stage has sent on without an answer is in flight on it, its cap is also its credit with the rank after
    it, which never has to hold more inputs than that. The gradient of weights, for which nobody waits, fills the time
    in which nothing else can run. A stage goes forward in an iteration once all of the one before have gone forward
    there, and so with its backwards and their ends: what it updates by in an iteration is of that iteration.

    Whatever the caps, no ranks wait for each other. Of the oldest iteration that has not ended, the micro-batch in
    flight that is furthest on can always run, as the last stage turns round and a backward needs no admission.
    """

    def __init__(self, plan: RankPlan) -> None:
        self._stages = {stage: _StageReady(plan.caps[stage], plan.micro_batches) for stage in plan.stages}
        self._place = _places(plan)
        super().__init__(plan)

    def _know(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if not self._missing[action]:
                self._is_ready(action)

    def _choose(self) -> Action | None:
        stages = self._stages.values()
        first = min(chain.from_iterable(stage.urgent() for stage in stages), default=None) or min(
            chain.from_iterable(stage.fillers() for stage in stages), default=None
        )
        if first is None:
            return None
        _, action = first
        self._stages[action.stage].take(action)
        return action

    def _left(self) -> bool:
        return bool(self._missing)

    def ran(self, action: Action) -> None:
        self._stages[action.stage].in_flight -= action.op in ("B", "W")
        super().ran(action)

    def _give(self, action: Action) -> None:
        super()._give(action)
        if not self._missing[action]:
            self._is_ready(action)

    def _is_ready(self, action: Action) -> None:
        self._stages[action.stage].put(self._place(action), action)


Ready = tuple[int, Action]
"""A computation that has all that it needs, behind its place in the order."""


class _StageReady:
    """What one stage has ready, and how far it has come."""

    def __init__(self, cap: int, micro_batches: int) -> None:
        self._cap, self._micro_batches = cap, micro_batches
        self._forwards: list[Ready] = []
        self._backwards: list[Ready] = []
        self._weights: list[Ready] = []
        self._begun = {"forward": 0, "gradient": 0, "end": 0}
        """Micro-batches since the pipeline was empty."""
        self.in_flight = 0

    def put(self, place: int, action: Action) -> None:
        heapq.heappush(self._heap(action), (place, action))

    def take(self, action: Action) -> None:
        """It will be run; it is what `urgent` or `fillers` gave."""
        heapq.heappop(self._heap(action))
        for part in _PARTS[action.op]:
            self._begun[part] += 1
        self.in_flight += action.op == "F"

    def urgent(self) -> Iterator[Ready]:
        """What others wait for: the first forward, if it is admitted, and the first backward."""
        if self._forwards and self.in_flight < self._cap and self._has_come_to(self._forwards[0][1]):
            yield self._forwards[0]
        if self._backwards and self._has_come_to(self._backwards[0][1]):
            yield self._backwards[0]

    def fillers(self) -> Iterator[Ready]:
        """The first gradient of weights."""
        if self._weights and self._has_come_to(self._weights[0][1]):
            yield self._weights[0]

    def _has_come_to(self, action: Action) -> bool:
        """Whether all that an action is part of has begun for all micro-batches of the iterations before its own."""
        iteration = action.micro_batch // self._micro_batches
        return all(iteration <= self._begun[part] // self._micro_batches for part in _PARTS[action.op])

    def _heap(self, action: Action) -> list[Ready]:
        if action.op == "F":
            return self._forwards
        return self._weights if action.op == "W" else self._backwards


_PARTS = MappingProxyType({"F": ("forward",), "B": ("gradient", "end"), "I": ("gradient",), "W": ("end",)})
"""What each operation does for its micro-batch."""


def _places(plan: RankPlan) -> Callable[[Action], int]:
    """Where an action stands in the order of a plan whose iterations run one into the other."""
    if plan.is_window:
        # As in `windowed`: right before the forward of so many micro-batches later stands a backward.
        cap = plan.caps[plan.rank]
        return lambda action: 2 * action.micro_batch + (1 if action.op == "F" else 2 * cap)
    places = {action: place for place, action in enumerate(plan.computations)}

    def place(action: Action) -> int:
        iteration, micro_batch = divmod(action.micro_batch, plan.micro_batches)
        return iteration * len(places) + places[action._replace(micro_batch=micro_batch)]

    return place


def decision(plan: RankPlan) -> Decision:
    """The decision from an empty pipeline on, as the binding of the plan says."""
    return HintDecision(plan) if plan.binding == "hint" else StrictDecision(plan)
