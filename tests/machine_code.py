"""`python -m tests.machine_code`: compiles the planner's loops once, where each test process would do it for itself.

Two processes share them; what they make is kept beside the sources, where the tests find it. A loop that is forgotten
here is compiled at its first use, as ever.
"""

from __future__ import annotations

import sys
from multiprocessing import Process

from scheduler.pipeline.plan.auto import fastest
from scheduler.pipeline.plan.generate import generate
from scheduler.pipeline.plan.passes import plan_of
from scheduler.pipeline.plan.search import search
from scheduler.pipeline.plan.study import draw
from scheduler.pipeline.plan.timing import timeline
from scheduler.policies import PolicyConfig, decide
from tests.plans import UNIT, chain_pipeline
from tests.worlds import both_ways, cluster, job, snapshot


def decision() -> None:
    """All that horizon goes by: chains, regions, rungs, prices, forms, windows, timelines."""
    world = cluster({"a": 4, "b": 4, "c": 4}, both_ways(("a", "b", 1e6), ("b", "c", 1e6), ("a", "c", 1e6)))
    jobs = [job(f"j{number}", layers=12, seconds=12.0, micro_batches=16) for number in range(3)]
    decide(snapshot(world, *jobs), PolicyConfig("horizon"))


def orders() -> None:
    """All that orders come from: lists, annealing, lags, their timing."""
    (drawn,) = draw(1, 7, "K", most_stages=4)
    fastest(drawn.split, drawn.micro_batches)
    pipeline = chain_pipeline([UNIT] * 2, {0: (1.0, 0.5)}, memory_bytes=2)
    timeline(plan_of(pipeline, search(pipeline, 2, generate(pipeline, 2), rounds=1, steps=10).order))


def main() -> int:
    """Both, side by side; the exit code."""
    both = [Process(target=part) for part in (decision, orders)]
    for part in both:
        part.start()
    for part in both:
        part.join()
    return int(any(part.exitcode for part in both))


if __name__ == "__main__":
    sys.exit(main())
