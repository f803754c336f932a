"""What a job comes to alone is no more than any placement gives it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scheduler.bench.alone import fastest, options_of
from scheduler.bench.paper import paper_cluster
from scheduler.cluster import Cluster, Link
from scheduler.cost import segment_powers_w
from scheduler.errors import InvalidValueError
from scheduler.evaluate import evaluate
from scheduler.job import JobSpec, Parallelism, Recompute, Schedule, Training
from scheduler.placement import Cut, Segment
from scheduler.presets import gpu, model
from scheduler.replay.jobs import ReplayJob

STEPS = 7


def _job(schedule: Schedule, tensor: int = 2) -> ReplayJob:
    training = Training(STEPS, micro_batch=4, micro_batches=16, schedule=schedule, recompute=Recompute.FULL)
    shape = replace(model("Qwen2.5-14B"), seq_len=2048)
    spec = JobSpec("j", "j", "p", 0.0, shape, training, Parallelism(tensor=tensor))
    return ReplayJob(spec, 0.0, STEPS)


def _cluster() -> Cluster:
    ends = ("a", "b")
    links = {(s, d): Link(s, d, 1e9, 0.05) for s in ends for d in ends if s != d}
    return paper_cluster({"a": 64, "b": 64}, 1.0, links)


@pytest.mark.parametrize("schedule", [Schedule.SLACK_1F1B, Schedule.ONE_F_ONE_B, Schedule.GPIPE])
def test_no_placement_is_faster_or_draws_less(schedule: Schedule) -> None:
    job, cluster = _job(schedule), _cluster()
    options = {option.gpus: option for option in options_of(job, cluster)}
    draw = np.random.default_rng(5)
    for stages in range(12, 48):
        first = int(draw.integers(1, stages))
        bandwidth_bps = float(draw.choice([1e8, 1e9, 1e11]))
        for segments, cuts in (
            ((Segment("a", "A6000", stages, 2),), ()),
            (
                (Segment("a", "A6000", first, 2), Segment("b", "A6000", stages - first, 2)),
                (Cut("a", "b", bandwidth_bps, 0.05),),
            ),
        ):
            found = evaluate(job.spec, cluster, segments, cuts)
            if not found.fits:
                continue
            floor = options[stages * 2]
            duration_s = found.iteration_s * STEPS
            assert floor.duration_s <= duration_s * (1 + 1e-12)
            powers = segment_powers_w(found.placement, found.busy_fraction, cluster.gpu_types)
            drawn = sum(s.gpus * w for s, w in zip(segments, powers, strict=True)) * duration_s / 3.6e6
            assert floor.energy_kwh <= drawn * (1 + 1e-12)


def test_alone_in_one_region_without_stalls_the_floor_is_met() -> None:
    job, cluster = _job(Schedule.SLACK_1F1B), _cluster()
    found = evaluate(job.spec, cluster, (Segment("a", "A6000", 16, 2),), ())
    floor = next(option for option in options_of(job, cluster) if option.gpus == 32)
    assert floor.duration_s == pytest.approx(found.iteration_s * STEPS, rel=0.02)


def test_the_fastest_keeps_within_the_gpus_that_it_is_given() -> None:
    options = options_of(_job(Schedule.SLACK_1F1B), _cluster())
    assert fastest(options).duration_s == min(option.duration_s for option in options)
    assert fastest(options, 20).gpus <= 20
    assert fastest(options, 1).gpus == min(option.gpus for option in options)


def test_a_job_that_fits_nowhere_and_a_mixed_cluster_are_told() -> None:
    small = paper_cluster({"a": 2, "b": 4}, 1.0, {})
    with pytest.raises(InvalidValueError, match="fits in the cluster"):
        options_of(_job(Schedule.SLACK_1F1B), small)
    cluster = _cluster()
    pool = replace(cluster.pools["b", "A6000"], gpu_type="L40S")
    mixed = replace(
        cluster,
        gpu_types={**cluster.gpu_types, "L40S": gpu("L40S")},
        pools={("a", "A6000"): cluster.pools["a", "A6000"], ("b", "L40S"): pool},
    )
    with pytest.raises(InvalidValueError, match="one type"):
        options_of(_job(Schedule.SLACK_1F1B), mixed)
