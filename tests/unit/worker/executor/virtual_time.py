"""The ranks of a pipeline in virtual time: the executor's own decisions, with given durations in place of work."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from agents.worker.executor.decision import decision
from agents.worker.executor.rank_plan import Action, RankPlan
from scheduler.pipeline.plan.ir import Plan
from tests.wire_plans import rank_plans

SIGMA = 0.5
"""Of the logarithm of a duration."""


class StuckError(AssertionError):
    """Ranks that wait for each other."""


def run(
    plans: Sequence[RankPlan],
    seconds: Callable[[Action], float],
    latency_s: Callable[[Action], float] = lambda action: 0.0,
    iterations: int = 1,
) -> tuple[float, list[list[Action]]]:
    """(makespan, for each rank what it computed in its order) of iterations that run one into the other.

    `seconds` is how long a computation takes, `latency_s` how long what comes of it travels to another rank.
    """
    decisions = [decision(plan) for plan in plans]
    for each in decisions:
        for _ in range(iterations - 1):
            each.extend()
        each.close()
    computed: list[list[Action]] = [[] for _ in plans]
    running: list[Action | None] = [None for _ in plans]
    number = itertools.count()
    events: list[tuple[float, int, int, Action, bool]] = []
    now_s = 0.0

    def start(rank: int) -> None:
        action = decisions[rank].begin() if running[rank] is None else None
        if action is not None:
            running[rank] = action
            computed[rank].append(action)
            heapq.heappush(events, (now_s + seconds(action), next(number), rank, action, False))

    for rank in range(len(plans)):
        start(rank)
    while events:
        now_s, _, rank, action, is_arrival = heapq.heappop(events)
        stage, op, micro_batch = action
        if is_arrival and op == "F":
            decisions[rank].deliver_input(stage + 1, micro_batch)
        elif is_arrival:
            decisions[rank].deliver_gradient(stage - 1, micro_batch)
        else:
            running[rank] = None
            decisions[rank].ran(action)
            neighbour = stage + 1 if op == "F" else stage - 1
            if op != "W" and 0 <= neighbour <= plans[rank].last_stage and not plans[rank].has(neighbour):
                there_s = now_s + latency_s(action)
                to = plans[rank].stage_ranks[neighbour]
                heapq.heappush(events, (there_s, next(number), to, action, True))
        start(rank)
    if not all(each.finished for each in decisions):
        raise StuckError([str(trace[-1:]) for trace in computed])
    return now_s, computed


def hints(plan: Plan, more: int) -> list[RankPlan]:
    """Every rank's plan as a hint, with `more` micro-batches in flight than the order has."""
    return [
        replace(each, binding="hint", caps=tuple(cap + more for cap in each.caps))
        for each in rank_plans(plan, messages=False, binding="hint")
    ]


def jitter(seed: int) -> Callable[[Action], float]:
    """Log-normal durations of mean 1, a whole backward the sum of its parts: every order has the same work to do."""

    def seconds(action: Action) -> float:
        if action.op == "B":
            return sum(seconds(action._replace(op=part)) for part in "IW")
        return math.exp(random.Random(f"{seed}/{action}").normalvariate(-SIGMA * SIGMA / 2, SIGMA))

    return seconds
