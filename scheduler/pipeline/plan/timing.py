"""How long a plan takes: the exact event simulation of any order of any stages on any ranks.

The rules are those of `scheduler.pipeline.timeline`: a rank does one thing at a time, in its order; a computation
starts when its input is there; a message occupies its link first come first served, and arrives `latency_s` after
that. Sends are non-blocking, or the rank stands still until its message has arrived. Inside a region messages are
free. Receives only post, they take no time.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from scheduler.errors import InvalidValueError
from scheduler.pipeline.kernel import Counts, Floats, compiled
from scheduler.pipeline.plan import kernel
from scheduler.pipeline.plan.communication import RECEIVES, Wiring
from scheduler.pipeline.plan.ir import Actions, Binding, Link, Op, Pipeline, Plan, StageAction
from scheduler.pipeline.timeline import SendMode

Span = tuple[float, float]
"""Start and end of an action, seconds: of a message, when it begins to occupy the link and when it arrives."""


@dataclass(frozen=True, slots=True)
class PlanTimeline:
    """One iteration: its length, how long each rank computes, and when each of `actions` runs.

    `actions` are those of the plan without the receives; `spans` has an entry for each of them.
    """

    makespan_s: float
    busy_s: tuple[float, ...]
    actions: tuple[Actions, ...]
    spans: tuple[tuple[Span, ...], ...]

    @property
    def bubble_fraction(self) -> float:
        """The part of all ranks' time in which they do not compute."""
        if self.makespan_s == 0:
            return 0.0
        return max(0.0, 1 - sum(self.busy_s) / (len(self.busy_s) * self.makespan_s))


@dataclass(frozen=True, slots=True)
class Program:
    """A plan as the arrays that `kernel.run` takes, step for step in the order of `actions`."""

    actions: tuple[Actions, ...]
    begin: Counts
    duration: Floats
    needs: Counts
    wakes: Counts
    sends: Counts
    link: Counts
    links: int
    latency: Floats
    transfer: Floats

    @classmethod
    def of(cls, plan: Plan) -> Program:
        """Raises InvalidValueError for a plan that only hints: when its actions run is for its executor to say."""
        if plan.binding is not Binding.STRICT:
            raise InvalidValueError(
                "plan.binding", plan.binding.value, "a strict plan, whose order is its timeline's"
            )
        pipeline, wiring = plan.pipeline, Wiring(plan.pipeline)
        routes = _Routes(pipeline)
        steps = tuple(tuple(each for each in actions if each.op not in RECEIVES) for actions in plan.actions)
        flat = [action for actions in steps for action in actions]
        index = {_result(each): at for at, each in enumerate(flat) if each.op in _GIVING_RESULTS}
        count = len(flat)
        needs, wakes, sends, link = (np.full(count, -1, dtype=np.int64) for _ in range(4))
        duration, latency, transfer = (np.zeros(count) for _ in range(3))
        numbers = {each: number for number, each in enumerate(pipeline.links)}
        for at, action in enumerate(flat):
            if action.op.computes:
                duration[at] = pipeline.stages[action.stage].cost.seconds(action.op)
                if (source := wiring.source(action)) is not None:
                    needs[at] = index[source, action.op is not Op.FORWARD, action.micro_batch]
                if (receive := wiring.receives(wiring.sends(action) or action)) is not None:
                    wakes[at] = wiring.rank[receive.stage]
                continue
            sends[at] = index[action.stage, action.op is Op.SEND_BACKWARD, action.micro_batch]
            wakes[at] = wakes[sends[at]]
            if (over := routes.over(action)) is not None:
                path, transfer[at] = over
                link[at], latency[at] = numbers[path], path.latency_s
        begin = np.cumsum([0, *map(len, steps)], dtype=np.int64)
        return cls(steps, begin, duration, needs, wakes, sends, link, len(numbers), latency, transfer)


_GIVING_RESULTS = (Op.FORWARD, Op.BACKWARD, Op.INPUT_GRADIENT)


def timeline(plan: Plan, send: SendMode = SendMode.NON_BLOCKING) -> PlanTimeline:
    """The timeline of a strict plan, compiled."""
    program = Program.of(plan)
    start, end = np.zeros(program.duration.size), np.zeros(program.duration.size)
    makespan_s = compiled(kernel.run)(
        program.begin,
        program.duration,
        program.needs,
        program.wakes,
        program.sends,
        program.link,
        program.links,
        program.latency,
        program.transfer,
        send is SendMode.BLOCKING,
        start,
        end,
    )
    _require_end(makespan_s)
    begin = program.begin.tolist()
    spans = tuple(
        tuple(zip(start[first:last].tolist(), end[first:last].tolist(), strict=True))
        for first, last in pairwise(begin)
    )
    return PlanTimeline(float(makespan_s), _busy_s(plan), program.actions, spans)


def timeline_in_python(plan: Plan, send: SendMode = SendMode.NON_BLOCKING) -> PlanTimeline:
    """The same in plain Python, written apart: what `timeline` is held to."""
    Program.of(plan)  # for what it refuses
    pipeline, wiring = plan.pipeline, Wiring(plan.pipeline)
    routes = _Routes(pipeline)
    steps = tuple(tuple(each for each in actions if each.op not in RECEIVES) for actions in plan.actions)
    spans: list[list[Span]] = [[] for _ in steps]
    arrived_s: dict[tuple[int, bool, int], float] = {}
    waiting: dict[tuple[int, bool, int], tuple[int, float]] = {}
    link_free_s: dict[Link, float] = {}
    events = [(0.0, rank) for rank in range(len(steps))]  # when a rank turns to its next step
    running: dict[int, StageAction] = {}
    makespan_s = 0.0

    def begin(rank: int, action: StageAction, at_s: float) -> None:
        end_s = at_s + pipeline.stages[action.stage].cost.seconds(action.op)
        spans[rank].append((at_s, end_s))
        running[rank] = action
        heapq.heappush(events, (end_s, rank))

    while events:
        now_s, rank = heapq.heappop(events)
        if (ended := running.pop(rank, None)) is not None:
            makespan_s = max(makespan_s, now_s)
            if ended.op is not Op.WEIGHT_GRADIENT and wiring.sends(ended) is None:
                arrived_s[_result(ended)] = now_s
        while len(spans[rank]) < len(steps[rank]):
            action = steps[rank][len(spans[rank])]
            if action.op.computes:
                source = wiring.source(action)
                if source is None:
                    begin(rank, action, now_s)
                    break
                need = (source, action.op is not Op.FORWARD, action.micro_batch)
                if need in arrived_s:
                    begin(rank, action, max(now_s, arrived_s[need]))
                else:
                    waiting[need] = (rank, now_s)
                break
            result = (action.stage, action.op is Op.SEND_BACKWARD, action.micro_batch)
            over = routes.over(action)
            start_s = there_s = now_s
            if over is not None:
                path, transfer_s = over
                start_s = max(now_s, link_free_s.get(path, 0.0))
                link_free_s[path] = start_s + transfer_s
                there_s = link_free_s[path] + path.latency_s
            spans[rank].append((start_s, there_s))
            arrived_s[result] = there_s
            if result in waiting:
                other, free_s = waiting.pop(result)
                begin(other, steps[other][len(spans[other])], max(free_s, there_s))
            if send is SendMode.BLOCKING and there_s > now_s:
                heapq.heappush(events, (there_s, rank))
                break
    _require_end(
        -1.0 if any(len(made) < len(of) for made, of in zip(spans, steps, strict=True)) else makespan_s
    )
    return PlanTimeline(makespan_s, _busy_s(plan), steps, tuple(map(tuple, spans)))


def _result(action: StageAction) -> tuple[int, bool, int]:
    """What others know the result of a computation by: stage, whether it is a gradient, micro-batch."""
    return action.stage, action.op is not Op.FORWARD, action.micro_batch


class _Routes:
    """What messages go over; found once for each two stages."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._rank = [stage.rank for stage in pipeline.stages]
        self._edges = {edge.source: edge for edge in pipeline.edges}
        self._into = {edge.target: edge for edge in pipeline.edges}
        self._found: dict[tuple[int, Op], tuple[Link, float] | None] = {}

    def over(self, send: StageAction) -> tuple[Link, float] | None:
        """The link of a message and how long it occupies it, seconds; none inside a region."""
        key = (send.stage, send.op)
        if key not in self._found:
            edge = self._edges[send.stage] if send.op is Op.SEND_FORWARD else self._into[send.stage]
            ends = [self._rank[stage] for stage in (edge.source, edge.target)]
            link = self._pipeline.link(*(ends if send.op is Op.SEND_FORWARD else reversed(ends)))
            self._found[key] = None if link is None else (link, link.transfer_s(edge.wire_bytes))
        return self._found[key]


def _busy_s(plan: Plan) -> tuple[float, ...]:
    costs = [stage.cost for stage in plan.pipeline.stages]
    return tuple(sum(costs[stage].seconds(op) for stage, op, _ in actions) for actions in plan.actions)


def _require_end(makespan_s: float) -> None:
    if makespan_s < 0:
        raise InvalidValueError("plan.actions", "ranks that wait for each other", "a plan that was checked")
