"""What a rank runs next: the whole judgement of an executor, without a clock, threads or tensors.

Where results are is told to it: `deliver_input` and `deliver_gradient` for what came from another rank, `ran` for what
this rank has computed. `begin` chooses the computation to run now; None while the rank has to wait.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod

from agents.worker.executor.rank_plan import Action, RankPlan


class Decision(ABC):
    """The state of one iteration of one rank: what has run, and what could."""

    def __init__(self, plan: RankPlan) -> None:
        self._plan = plan
        self._order = plan.computations
        self._begun = 0
        self._missing: dict[Action, int] = {}
        """How many results each computation still waits for."""
        self._backward: dict[tuple[int, int], Action] = {}
        """By stage and micro-batch, what takes the gradient: B or I."""
        for action in self._order:
            stage, op, micro_batch = action
            if op in ("B", "I"):
                self._backward[stage, micro_batch] = action
                self._missing[action] = 1 if stage == plan.last_stage else 2
            else:
                self._missing[action] = 0 if op == "F" and stage == 0 else 1

    @property
    def finished(self) -> bool:
        """Whether everything has begun."""
        return self._begun == len(self._order)

    def begin(self) -> Action | None:
        """What to run now. The rank runs it, and then tells `ran`."""
        action = self._choose()
        if action is not None:
            self._begun += 1
        return action

    @abstractmethod
    def _choose(self) -> Action | None:
        """What is ready and comes first; it will be run."""

    def deliver_input(self, stage: int, micro_batch: int) -> None:
        """The input of a forward is there."""
        self._give(Action(stage, "F", micro_batch))

    def deliver_gradient(self, stage: int, micro_batch: int) -> None:
        """The gradient of a stage's output is there."""
        self._give(self._backward[stage, micro_batch])

    def ran(self, action: Action) -> None:
        """What `begin` gave has run, and what comes of it is there for the other stages of this rank."""
        stage, op, micro_batch = action
        if op == "F":
            self._give(self._backward[stage, micro_batch])
            if self._plan.has(stage + 1):
                self.deliver_input(stage + 1, micro_batch)
        elif op != "W" and self._plan.has(stage - 1):
            self.deliver_gradient(stage - 1, micro_batch)
        if op == "I":
            self._give(Action(stage, "W", micro_batch))

    def _give(self, action: Action) -> None:
        """`action` has one more of the results that it needs."""
        self._missing[action] -= 1


class StrictDecision(Decision):
    """Keeps to the order of the plan."""

    def _choose(self) -> Action | None:
        if self.finished:
            return None
        action = self._order[self._begun]
        return None if self._missing[action] else action


class HintDecision(Decision):
    """Takes what is ready first in the order of the plan (RRFP, arXiv 2605.18750).

    A forward is admitted while its stage has fewer micro-batches in flight than its cap: from F to the end of B or W.
    As what a stage has sent on without an answer is in flight on it, its cap is also its credit with the rank after
    it, which never has to hold more inputs than that. The gradient of weights, for which nobody waits, fills the time
    in which nothing else can run. Whatever the caps, no ranks wait for each other: of the micro-batches in flight the
    one furthest on can always run, as the last stage turns round and a backward needs no admission.
    """

    def __init__(self, plan: RankPlan) -> None:
        super().__init__(plan)
        self._place = {action: place for place, action in enumerate(self._order)}
        self._forwards: dict[int, list[int]] = {stage: [] for stage in plan.stages}
        self._backwards: list[int] = []
        self._weights: list[int] = []
        self._in_flight = dict.fromkeys(plan.stages, 0)
        for action in self._order:
            if not self._missing[action]:
                heapq.heappush(self._heap(action), self._place[action])

    def _choose(self) -> Action | None:
        ready = [
            heap
            for stage, heap in self._forwards.items()
            if heap and self._in_flight[stage] < self._plan.caps[stage]
        ]
        if self._backwards:
            ready.append(self._backwards)
        if not ready and self._weights:
            ready.append(self._weights)
        if not ready:
            return None
        action = self._order[heapq.heappop(min(ready))]
        self._in_flight[action.stage] += action.op == "F"
        return action

    def ran(self, action: Action) -> None:
        self._in_flight[action.stage] -= action.op in ("B", "W")
        super().ran(action)

    def _give(self, action: Action) -> None:
        super()._give(action)
        if not self._missing[action]:
            heapq.heappush(self._heap(action), self._place[action])

    def _heap(self, action: Action) -> list[int]:
        """The ready computations of its kind, by their place in the order."""
        if action.op == "F":
            return self._forwards[action.stage]
        return self._weights if action.op == "W" else self._backwards


def decision(plan: RankPlan) -> Decision:
    """The decision of an iteration that begins, as the binding of the plan says."""
    return HintDecision(plan) if plan.binding == "hint" else StrictDecision(plan)
