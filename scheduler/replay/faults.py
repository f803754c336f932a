"""Node faults of a scenario: read from a trace, or drawn from a seed.

Every pool is cut into nodes of eight GPUs (the last one what is left); a fault takes the whole node out of its pool
for as long as it lasts. Which node is hit, and whom the GPUs that fail belonged to, is drawn by SHA-256, so that
anybody can draw it again.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.cluster import Cluster, PoolKey
from scheduler.replay.draws import uniform
from scheduler.spec.csv_text import MAX_FILE_BYTES
from scheduler.spec.issues import FieldIssue, SpecError
from scheduler.spec.scenario import FaultPlan, Scenario
from scheduler.spec.scenario_document import FaultGeneratorSection

GPUS_PER_NODE = 8
_DAY_S = 86_400.0
_Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A node is out of its pool from `start_s` to `end_s`, seconds from the start of the scenario.

    `place`, between 0 and 1, says where in the pool its GPUs are when the fault begins (`outages.py`).
    """

    pool: PoolKey
    gpus: int
    start_s: float
    end_s: float
    place: float


def faults_of(scenario: Scenario) -> tuple[NodeFault, ...]:
    """The faults of a scenario by their beginning; none where it has none. Raises SpecError for a bad trace."""
    plan = scenario.faults
    if plan is None:
        return ()
    nodes = list(_nodes(scenario.cluster))
    if plan.trace is not None:
        spans = _mapped(read_fault_trace(plan.trace), plan, len(nodes))
    else:
        assert plan.section.generator is not None  # noqa: S101 - one of the two is there
        spans = _drawn(plan.section.generator, plan.section.seed, len(nodes))
    faults = [
        NodeFault(*nodes[node], start_s, end_s, uniform(f"{plan.section.seed}/place/{node}/{number}"))
        for node, number, (start_s, end_s) in spans
    ]
    return tuple(sorted(faults, key=lambda fault: (fault.start_s, fault.pool, fault.place)))


def read_fault_trace(path: Path) -> dict[str, list[_Span]]:
    """When each node of a trace was down, in seconds from the start of the trace; overlapping faults are one.

    A JSON list (gzip where its name ends in .gz) of `node_id`, `event_time` in days, and `event_type` `fault_start`
    or `fault_end`: the layout of InfiniteHBD-Trace (StepFun, arXiv 2502.03885). A fault without an end never ends.
    """
    open_: dict[str, list[float]] = {}
    spans: dict[str, list[_Span]] = {}
    events = _events(path)
    times_s = [_time_s(index, event, path) for index, event in enumerate(events)]
    for index in sorted(range(len(events)), key=times_s.__getitem__):
        event, at_s = events[index], times_s[index]
        node = event.get("node_id")
        if not isinstance(node, str):
            raise _bad(path, index, "node_id", node, "the id of a node")
        match event.get("event_type"):
            case "fault_start":
                open_.setdefault(node, []).append(at_s)
            case "fault_end":
                if not open_.get(node):
                    raise _bad(path, index, "event_type", "fault_end", "an end after its beginning")
                spans.setdefault(node, []).append((open_[node].pop(0), at_s))
            case other:
                raise _bad(path, index, "event_type", other, "fault_start or fault_end")
    for node, starts in open_.items():
        spans.setdefault(node, []).extend((start_s, math.inf) for start_s in starts)
    return {node: _merged(each) for node, each in spans.items()}


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            events = json.loads(file.read(MAX_FILE_BYTES).decode("utf-8"))
    except (OSError, EOFError, ValueError) as error:
        raise SpecError([FieldIssue("", path.name, f"JSON that can be read ({error})")], str(path)) from error
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise SpecError([FieldIssue("", type(events).__name__, "a list of events")], str(path))
    return events


def _time_s(index: int, event: dict[str, Any], path: Path) -> float:
    days = event.get("event_time")
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 <= days < math.inf:
        raise _bad(path, index, "event_time", days, "a number of days of 0 or more")
    return days * _DAY_S


def _bad(path: Path, index: int, field: str, value: object, expected: str) -> SpecError:
    return SpecError([FieldIssue(f"/{index}/{field}", value, expected)], str(path))


def _merged(spans: Iterable[_Span]) -> list[_Span]:
    merged: list[_Span] = []
    for start_s, end_s in sorted(spans):
        if merged and start_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end_s))
        else:
            merged.append((start_s, end_s))
    return merged


def _nodes(cluster: Cluster) -> Iterator[tuple[PoolKey, int]]:
    """(pool, GPUs) of every node there is, by pool."""
    for key in sorted(cluster.pools):
        gpus = cluster.pools[key].gpus
        for first in range(0, gpus, GPUS_PER_NODE):
            yield key, min(GPUS_PER_NODE, gpus - first)


def _mapped(traced: dict[str, list[_Span]], plan: FaultPlan, ours: int) -> Iterator[tuple[int, int, _Span]]:
    """(our node, number of its fault, span): every traced node is one of ours, or beyond them.

    The traced cluster had `nodes` nodes, those without a fault included, and its i-th node that is named is laid on
    the i-th of as many places in a drawn order: a smaller cluster of ours gets its share of the faults.
    """
    section = plan.section
    places = range(max(section.nodes, len(traced), ours))
    order = sorted(places, key=lambda place: uniform(f"{section.seed}/node/{place}"))
    for place, node in zip(order, sorted(traced), strict=False):
        if place >= ours:
            continue
        for number, (start_s, end_s) in enumerate(traced[node]):
            if end_s >= section.skip:
                yield place, number, (max(0.0, start_s - section.skip), end_s - section.skip)


def _drawn(generator: FaultGeneratorSection, seed: int, ours: int) -> Iterator[tuple[int, int, _Span]]:
    """Exponential times between repair and fault, and from fault to repair, for every node."""
    for node in range(ours):
        at_s, number = 0.0, 0
        while True:
            start_s = at_s - generator.mean_between * math.log(uniform(f"{seed}/up/{node}/{number}"))
            if start_s >= generator.span:
                break
            at_s = start_s - generator.mean_repair * math.log(uniform(f"{seed}/down/{node}/{number}"))
            yield node, number, (start_s, at_s)
            number += 1
