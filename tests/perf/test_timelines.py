"""What a timeline costs, beside its plain twin, and an evaluation, with and without a search for its window."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from scheduler import presets
from scheduler.cluster import Cluster, Region
from scheduler.evaluate import Evaluation, evaluate, in_its_order
from scheduler.job import JobSpec, MeasuredProfile, Parallelism, Schedule, Training
from scheduler.pipeline.iteration import bottleneck_bound_s, iteration_forms
from scheduler.pipeline.schedules import action_table, strict_window
from scheduler.pipeline.timeline import simulate, simulate_table
from scheduler.placement import Cut, Segment
from tests.pipelines import equal_chain

GPU = presets.gpu("A100-80G")
CLUSTER = Cluster({GPU.name: GPU}, {name: Region(name) for name in "abc"}, {}, {})


def _microseconds(work: Callable[[int], object], times: int) -> tuple[float, float]:
    """(least, median) of single calls, each with its own number."""
    taken = []
    for number in range(times):
        begin = time.perf_counter()
        work(number)
        taken.append((time.perf_counter() - begin) * 1e6)
    return min(taken), statistics.median(taken)


@pytest.mark.perf
def test_a_timeline_of_64_stages_and_256_micro_batches():
    chain = equal_chain(1.0, 2.0, 64, {15: (20.0, 1.0), 31: (5.0, 2.0), 47: (1.0, 0.5)})
    window = strict_window(64, 256)
    table = action_table(window, 256)
    assert simulate(chain, window, 256).makespan_s == simulate_table(chain, table).makespan_s  # loads both
    iteration_forms(chain, window, 256)
    fresh = simulate.__wrapped__
    figures: Sequence[tuple[str, Callable[[int], object], int]] = (
        ("timeline, compiled", lambda _: fresh(chain, window, 256), 200),
        ("timeline, plain twin", lambda _: simulate_table(chain, table), 5),
        ("closed forms", lambda _: iteration_forms(chain, window, 256), 200),
        ("bottleneck bound", lambda _: bottleneck_bound_s(chain, 256), 200),
    )
    print("\n64 stages × 256 micro-batches")
    compiled_us = 0.0
    for name, work, times in figures:
        least, median = _microseconds(work, times)
        compiled_us = compiled_us or least
        print(
            f"  {name:22} least {least:9.1f} µs  median {median:9.1f} µs  {least / compiled_us:7.2f} × compiled"
        )
    assert compiled_us <= 500


def _spec(stages: int, micro_batches: int, schedule: Schedule, room: int) -> JobSpec:
    """`room` is how many micro-batches every stage of an equal split could hold."""
    memory = 0.95 * GPU.memory_bytes - 1e9 / stages
    return JobSpec(
        "job",
        "job",
        "perf",
        0.0,
        presets.model("llama-3.1-70b"),
        Training(10, 1, micro_batches, schedule=schedule, splits_backward=True),
        Parallelism(),
        profile=MeasuredProfile({GPU.name: 1.0}, {GPU.name: 2.0}, 1e8, 1e9, memory * stages / room),
    )


@pytest.mark.perf
@pytest.mark.parametrize(
    ("stages", "micro_batches", "room", "most_us", "most_auto_us"),
    [
        (8, 64, 9, 300, 1000),
        (16, 128, 17, 300, 1500),
        (64, 256, 53, 1000, 6000),
    ],  # of 64 stages the early ones have fewer layers
)
def test_a_new_evaluation_with_and_without_a_search_for_a_window(
    stages, micro_batches, room, most_us, most_auto_us
):
    print(f"\n{stages} stages × {micro_batches} micro-batches, a placement never seen before")
    counts = (stages // 2, stages // 4, stages - stages // 2 - stages // 4)
    segments = tuple(Segment(name, GPU.name, count, 1) for name, count in zip("abc", counts, strict=True))
    latency_s = 20.0 / stages
    strict_us = 0.0
    for salt, (name, schedule, in_flight) in enumerate(
        (
            ("strict 1F1B", Schedule.ONE_F_ONE_B, 10**6),
            ("slack fits", Schedule.SLACK_1F1B, 10**6),
            ("window searched", Schedule.SLACK_1F1B, room),
            ("auto", Schedule.AUTO, 10**6),
            ("auto, tight", Schedule.AUTO, room),
        )
    ):
        spec = _spec(stages, micro_batches, schedule, in_flight)

        def work(number: int, spec: JobSpec = spec, salt: int = salt) -> Evaluation:
            bandwidth_bps = 50e9 + 1000 * salt + number
            cuts = (Cut("a", "b", bandwidth_bps, latency_s), Cut("b", "c", bandwidth_bps, latency_s / 2))
            return evaluate(spec, CLUSTER, segments, cuts)

        found = work(-1)  # compiles, or loads
        least, median = _microseconds(work, 200)
        strict_us = strict_us or least
        print(
            f"  {name:16} least {least:7.1f} µs  median {median:7.1f} µs  {least / strict_us:5.2f} × strict  "
            f"iteration {found.iteration_s:7.2f} s"
        )
        assert found.fits
        assert least <= (most_auto_us if schedule is Schedule.AUTO else most_us)


@pytest.mark.perf
@pytest.mark.parametrize(
    ("stages", "micro_batches", "most_us"), [(8, 64, 40_000), (16, 128, 100_000), (32, 256, 700_000)]
)
def test_an_order_with_two_parts_a_stage_and_a_generated_one(stages, micro_batches, most_us):
    """A placement of the first is evaluated wherever a policy looks; the second is made once, for what begins."""
    print(f"\n{stages} stages × {micro_batches} micro-batches")
    segments = (Segment("a", GPU.name, stages // 2, 1), Segment("b", GPU.name, stages // 2, 1))
    model = replace(presets.model("llama-3.1-70b"), layers=64)
    for name, schedule, finish in (
        ("zb-v", Schedule.ZB_V, False),
        ("interleaved", Schedule.INTERLEAVED, False),
        ("generated", Schedule.AUTO, True),
    ):
        spec = replace(_spec(stages, micro_batches, schedule, 10 * stages), model=model)

        def work(number: int, spec: JobSpec = spec, finish: bool = finish) -> Evaluation:
            cuts = (Cut("a", "b", 50e9 + number, 20.0 / stages),)
            found = evaluate(spec, CLUSTER, segments, cuts)
            return in_its_order(spec, CLUSTER, found.placement) if finish else found

        work(-1)
        least, median = _microseconds(work, 20)
        print(f"  {name:12} least {least:9.1f} µs  median {median:9.1f} µs")
        assert least <= most_us
