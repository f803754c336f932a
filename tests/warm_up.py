"""`python -m tests.warm_up`: makes once what each of several test processes would make for itself.

That is the machine code of the planner's loops, and the bytecode of all modules with the assertions of tests rewritten.
Both are kept beside the sources, where the processes find them. What is forgotten here is made at its first use.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from multiprocessing import Process

import pytest

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


def bytecode() -> None:
    """Of every module that a test imports, and of the tests."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        pytest.main(["--collect-only", "--quiet"])


def main() -> int:
    """All side by side; the exit code."""
    parts = [Process(target=part) for part in (decision, orders, bytecode)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    return int(any(part.exitcode for part in parts))


if __name__ == "__main__":
    sys.exit(main())
