"""One iteration on a placement: its chain, its window, its time, and that all of it depends on nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from scheduler import presets
from scheduler.cluster import Cluster, Region
from scheduler.errors import InvalidValueError
from scheduler.evaluate import as_planned, evaluate
from scheduler.job import MeasuredProfile, Schedule
from scheduler.pipeline.plan.ir import LowRank
from scheduler.pipeline.schedules import slack_window, strict_window
from scheduler.pipeline.timeline import Chain, simulate
from scheduler.placement import Cut, Segment
from scheduler.profile import boundary_bytes, stage_profiles

A100 = presets.gpu("a100-80g")
H100 = presets.gpu("h100")
CLUSTER = Cluster(
    gpu_types={"A100-80G": A100, "H100": H100},
    regions={name: Region(name) for name in ("a", "b", "c")},
    pools={},
    links={},
)


def segments(*parts: tuple[str, int], gpu_type: str = "A100-80G") -> tuple[Segment, ...]:
    return tuple(Segment(region, gpu_type, stages, 1) for region, stages in parts)


def test_inside_one_region_an_iteration_takes_the_compute_and_the_last_sync(make_spec):
    spec = make_spec("gpt-3-1.3b", micro_batches=32, data=2)
    found = evaluate(spec, CLUSTER, segments(("a", 1)), ())
    (profile,) = stage_profiles(spec, (A100,))
    assert found.timeline_s == pytest.approx(32 * profile.pace_s)
    assert found.iteration_s == pytest.approx(found.timeline_s + profile.sync_s)
    assert found.busy_fraction == pytest.approx((found.timeline_s / found.iteration_s,))
    assert found.placement.describe() == "a:1"


def test_a_boundary_inside_a_region_is_free_and_a_cut_costs_what_was_granted(make_spec):
    spec = make_spec("llama-2-13b", micro_batches=32, schedule=Schedule.ONE_F_ONE_B)
    whole = evaluate(spec, CLUSTER, segments(("a", 8)), ())
    split = evaluate(spec, CLUSTER, segments(("a", 4), ("a", 4)), ())
    assert split.iteration_s == whole.iteration_s
    crossed = evaluate(spec, CLUSTER, segments(("a", 4), ("b", 4)), (Cut("a", "b", 1e9, 0.02),))
    # Written out: A bytes are 8·A bits; the latency is that of one way.
    transfer_s = 4096 * 5120 * 2 * 8 / 1e9
    chain = Chain(
        tuple(profile.forward_s for profile in whole.stage_profiles),
        tuple(profile.backward_s for profile in whole.stage_profiles),
        (0.0, 0.0, 0.0, 0.02, 0.0, 0.0, 0.0),
        (0.0, 0.0, 0.0, transfer_s, 0.0, 0.0, 0.0),
    )
    assert crossed.timeline_s == simulate(chain, strict_window(8, 32), 32).makespan_s > whole.timeline_s


@pytest.mark.parametrize(("schedule", "every"), [(Schedule.ONE_F_ONE_B, 8), (Schedule.SLACK_1F1B, 16)])
def test_a_pipeline_that_stays_full_takes_for_an_iteration_what_its_micro_batches_add(
    make_spec, schedule, every
):
    where = segments(("a", 4), ("b", 4)), (Cut("a", "b", 1e9, 0.3),)
    spec = make_spec("llama-2-13b", micro_batches=32, schedule=schedule)
    emptied = evaluate(spec, CLUSTER, *where)
    full = evaluate(updating(spec, every), CLUSTER, *where)
    transfer_s = 4096 * 5120 * 2 * 8 / 1e9
    chain = Chain(
        tuple(profile.forward_s for profile in full.stage_profiles),
        tuple(profile.backward_s for profile in full.stage_profiles),
        (0.0, 0.0, 0.0, 0.3, 0.0, 0.0, 0.0),
        (0.0, 0.0, 0.0, transfer_s, 0.0, 0.0, 0.0),
    )
    makespans_s = [simulate(chain, full.placement.window, 32 * more).makespan_s for more in (20, 40)]

    assert full.timeline_s == pytest.approx((makespans_s[1] - makespans_s[0]) / 20)
    assert full.timeline_s < emptied.timeline_s
    longest_s = max(profile.sync_s for profile in full.stage_profiles)
    assert full.iteration_s == pytest.approx(full.timeline_s + 32 / every * longest_s)


@pytest.mark.parametrize(
    "changes", [{"codec": LowRank(64)}, {"schedule": Schedule.GPIPE}], ids=["codec", "gpipe"]
)
def test_a_codec_and_gpipe_have_the_pipeline_emptied_whatever_the_updates(make_spec, changes):
    where = segments(("a", 4), ("b", 4)), (Cut("a", "b", 1e9, 0.3),)
    spec = make_spec("llama-2-13b", micro_batches=32, schedule=changes.get("schedule", Schedule.ONE_F_ONE_B))
    spec = replace(spec, parallelism=replace(spec.parallelism, codec=changes.get("codec")))

    found = evaluate(updating(spec, 8), CLUSTER, *where)

    emptied = evaluate(spec, CLUSTER, *where)
    assert (found.timeline_s, found.placement) == (emptied.timeline_s, emptied.placement)


def test_a_full_pipeline_is_evaluated_alike_by_its_job_and_by_its_placement(make_spec):
    where = segments(("a", 4), ("b", 4)), (Cut("a", "b", 1e9, 0.3),)
    spec = updating(make_spec("llama-2-13b", micro_batches=8, schedule=Schedule.SLACK_1F1B), 4)

    found = evaluate(spec, CLUSTER, *where)

    assert as_planned(spec, CLUSTER, found.placement) == found


def updating(spec, every):
    return replace(spec, training=replace(spec.training, update_every=every))


def test_each_cut_stands_at_the_boundary_between_its_regions(make_spec):
    """Moving the far cut to the other end of the chain must move its delay too."""
    spec = make_spec("llama-2-13b", micro_batches=4)
    near, far = Cut("a", "b", 100e9, 0.001), Cut("b", "c", 100e9, 3.0)
    early = evaluate(spec, CLUSTER, segments(("a", 1), ("b", 1), ("c", 6)), (near, far))
    late = evaluate(spec, CLUSTER, segments(("a", 1), ("b", 6), ("c", 1)), (near, far))
    assert early.placement.window == late.placement.window == strict_window(8, 4)
    assert early.iteration_s != late.iteration_s


def test_the_slack_window_is_used_where_memory_allows_and_else_the_best_that_fits(make_spec):
    spec = make_spec("llama-3.1-70b", tensor=8, micro_batches=64, schedule=Schedule.SLACK_1F1B)
    cut = (Cut("a", "b", 100e9, 0.3),)
    roomy = evaluate(spec, CLUSTER, segments(("a", 8), ("b", 8)), cut)
    assert roomy.fits
    assert roomy.placement.schedule is Schedule.SLACK_1F1B
    delays = [0.0] * 15
    delays[7] = 0.3 + boundary_bytes(spec) * 8 / 100e9
    pace_s = max(profile.pace_s for profile in roomy.stage_profiles)
    assert roomy.placement.window == slack_window(delays, pace_s, 64) != strict_window(16, 64)
    slow, parts = (Cut("a", "b", 1e9, 9.0),), segments(("a", 2), ("b", 2))
    tight = evaluate(spec, CLUSTER, parts, slow)
    assert tight.fits
    assert tight.placement.schedule is Schedule.SLACK_1F1B
    strict = evaluate(
        replace(spec, training=replace(spec.training, schedule=Schedule.ONE_F_ONE_B)), CLUSTER, parts, slow
    )
    assert (strict.placement.schedule, strict.placement.window) == (Schedule.ONE_F_ONE_B, (4, 3, 2, 1))
    assert tight.iteration_s < 0.8 * strict.iteration_s


def test_a_placement_without_the_memory_says_so(make_spec):
    assert not evaluate(make_spec("llama-2-70b"), CLUSTER, segments(("a", 4)), ()).fits


def test_stages_on_unlike_gpus_wait_for_the_slowest(make_spec):
    spec = make_spec("llama-2-13b", micro_batches=64)
    mixed = evaluate(spec, CLUSTER, (Segment("a", "A100-80G", 4, 1), Segment("a", "H100", 4, 1)), ())
    slow = evaluate(spec, CLUSTER, segments(("a", 8)), ())
    fast = evaluate(spec, CLUSTER, segments(("a", 8), gpu_type="H100"), ())
    assert fast.iteration_s < mixed.iteration_s < slow.iteration_s
    assert mixed.busy_fraction[0] > 2 * mixed.busy_fraction[4]


def test_what_cannot_be_placed_is_refused_by_name(make_spec):
    spec = make_spec("llama-2-7b")
    with pytest.raises(InvalidValueError, match="A100-80G, H100"):
        evaluate(spec, CLUSTER, segments(("a", 1), gpu_type="T4"), ())
    with pytest.raises(InvalidValueError, match="layers = 32"):
        evaluate(spec, CLUSTER, segments(("a", 33)), ())
    with pytest.raises(InvalidValueError, match="crossing"):
        evaluate(spec, CLUSTER, segments(("a", 4), ("b", 4)), ())


def test_jobs_that_train_alike_share_one_evaluation(make_spec):
    one, other = make_spec("llama-2-7b", steps=5), replace(make_spec("llama-2-7b", steps=9), job_id="job-2")
    parts = segments(("a", 8))
    assert evaluate(one, CLUSTER, parts, ()) is evaluate(other, CLUSTER, list(parts), [])


UNDER_ANOTHER_HASH_SEED = """
from scheduler import presets
from scheduler.cluster import Cluster, Region
from scheduler.evaluate import evaluate
from scheduler.job import JobSpec, MeasuredProfile, Training
from scheduler.placement import Cut, Segment
gpus = {name: presets.gpu(name) for name in ("A100-80G", "H100", "T4")}
cluster = Cluster(gpus, {name: Region(name) for name in "ab"}, {}, {})
profile = MeasuredProfile({n: 0.3 for n in gpus}, {n: 0.7 for n in gpus}, 1e7, 9e10, 1e10)
spec = JobSpec("j", "j", "p", 0.0, presets.model("llama-2-7b"), Training(1, 1, 16), profile=profile)
parts = (Segment("a", "H100", 3, 1), Segment("b", "T4", 4, 1))
answer = repr(evaluate(spec, cluster, parts, (Cut("a", "b", 3e9, 0.04),)))
"""


def test_the_answer_is_the_same_under_any_hash_seed():
    here: dict[str, str] = {}
    exec(UNDER_ANOTHER_HASH_SEED, here)  # noqa: S102 - the same text as below
    there = subprocess.run(
        [sys.executable, "-c", UNDER_ANOTHER_HASH_SEED + "print(answer)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={"PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"},
    )
    assert there.stdout.strip() == here["answer"]


def test_a_stage_that_never_waits_is_busy_all_the_time_and_not_more(make_spec):
    for micro_batches in range(1, 40):
        profile = MeasuredProfile({"A100-80G": 0.1}, {"A100-80G": 0.2}, 1e6, 0.0, 0.0)
        spec = make_spec("gpt-tiny", micro_batches=micro_batches, profile=profile)
        (fraction,) = evaluate(spec, CLUSTER, segments(("a", 1)), ()).busy_fraction
        assert 1.0 - 1e-12 <= fraction <= 1.0
