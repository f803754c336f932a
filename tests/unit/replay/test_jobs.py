"""Traces, the rule that makes jobs of them, generators, and what jobs declare."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.job import Elasticity, JobSpec
from scheduler.replay.generator import generated_jobs
from scheduler.replay.jobs import declared_steps
from scheduler.replay.solo import solo_iteration_s, steps_of
from scheduler.replay.trace_rule import traced_job, traced_model, traced_stages
from scheduler.replay.traces import TraceRow, read_trace
from scheduler.replay.workload import jobs_of
from scheduler.spec.issues import SpecError
from scheduler.spec.scenario import Scenario, load_scenario
from scheduler.spec.scenario_document import GeneratedJobsSection, TrainingDefaultsSection

EXAMPLE = Path(__file__).parents[3] / "deploy/examples/scenarios/three-regions.yaml"
TRAINING = TrainingDefaultsSection()
MakeScenario = Callable[..., Scenario]


@pytest.fixture(scope="module")
def example() -> Scenario:
    return load_scenario(EXAMPLE)


def spec_of(scenario: Scenario, gpus: int, duration_s: float = 3600.0, arrivals: float = 1.0) -> JobSpec:
    row = TraceRow("7", 500.0, "team", gpus, duration_s)
    return traced_job(row, scenario.cluster, TRAINING, Elasticity.RESIZE, scenario.start_s, arrivals).spec


@pytest.mark.parametrize(
    ("gpus", "stages", "tensor", "data", "model"),
    [
        (1, 1, 1, 1, "GPT-3-1.3B"),
        (2, 1, 2, 1, "GPT-3-1.3B"),
        (8, 1, 8, 1, "Llama-2-7b"),
        (9, 1, 8, 9 / 8, "Llama-2-13b"),
        (16, 2, 8, 1, "Llama-2-13b"),
        (56, 4, 8, 14 / 8, "Llama-3.1-70B"),
        (120, 8, 8, 15 / 8, "Llama-3.1-70B"),
        (136, 16, 8, 9 / 8, "GPT-3-175B"),  # 136 / 16 = 8.5, rounded up
        (1024, 16, 8, 8, "GPT-3-175B"),
    ],
)
def test_a_trace_row_becomes_the_job_of_the_rule(
    example: Scenario, gpus: int, stages: int, tensor: int, data: float, model: str
) -> None:
    spec = spec_of(example, gpus)
    assert traced_stages(gpus) == stages == spec.parallelism.named_stages
    assert (spec.parallelism.tensor, spec.parallelism.data) == (tensor, data)
    assert spec.parallelism.gpus_per_stage == math.ceil(gpus / stages)
    assert spec.model.name == model
    assert spec.model.seq_len == (2048 if model.startswith("GPT") else 4096)
    assert (spec.training.micro_batch, spec.training.micro_batches) == (1, 8 * stages)
    assert (spec.parallelism.stages_min, spec.parallelism.stages_max) == (None, None)


def test_steps_are_the_duration_over_the_solo_iteration_and_at_least_one(example: Scenario) -> None:
    spec = spec_of(example, 16, duration_s=36_000.0)
    alone_s = solo_iteration_s(spec, example.cluster, 2)
    assert abs(spec.training.steps * alone_s - 36_000.0) <= alone_s / 2
    assert spec_of(example, 16, duration_s=0.001).training.steps == 1
    assert steps_of(2.5, 1.0) == 3


def test_denser_arrivals_divide_the_times_of_submission(example: Scenario) -> None:
    assert spec_of(example, 16, arrivals=5.0).submit_s == example.start_s + 100.0


def test_the_limits_of_the_models_are_inclusive() -> None:
    sizes = (2, 3, 8, 9, 32, 33, 128, 129)
    names = ["GPT-3-1.3B", *["Llama-2-7b"] * 2, *["Llama-2-13b"] * 2, *["Llama-3.1-70B"] * 2, "GPT-3-175B"]
    assert [traced_model(gpus).name for gpus in sizes] == names


def test_declared_steps_are_log_normal_around_the_actual_ones() -> None:
    logs = [math.log(declared_steps(10**9, str(index), 0.5, 7) / 1e9) for index in range(4000)]
    mean = sum(logs) / len(logs)
    spread = math.sqrt(sum((each - mean) ** 2 for each in logs) / len(logs))
    assert mean == pytest.approx(0.0, abs=0.03)
    assert spread == pytest.approx(0.5, abs=0.02)
    assert min(declared_steps(1, str(index), 3.0, 7) for index in range(100)) == 1


def test_what_a_job_declares_depends_on_seed_and_job_alone() -> None:
    assert declared_steps(1000, "a", 0.5, 7) == declared_steps(1000, "a", 0.5, 7)
    assert declared_steps(1000, "a", 0.5, 7) != declared_steps(1000, "a", 0.5, 8)
    assert declared_steps(1000, "a", 0.5, 7) != declared_steps(1000, "b", 0.5, 7)
    assert declared_steps(1000, "a", 0.0, 7) == 1000


def test_a_generator_is_a_function_of_its_seed_and_a_longer_list_begins_with_the_shorter(
    example: Scenario,
) -> None:
    assert isinstance(example.jobs, GeneratedJobsSection)
    generator = example.jobs.generator

    def draw(**changes: object) -> list[tuple[object, ...]]:
        jobs = generated_jobs(
            generator.model_copy(update=changes), example.cluster, TRAINING, Elasticity.RESIZE, 0.0, 1.0
        )
        return [(job.spec.job_id, job.submit_s, job.actual_steps, job.spec.model.name) for job in jobs]

    assert draw() == draw()
    assert draw(count=10) == draw()[:10]
    assert draw(seed=12) != draw()
    submits = [entry[1] for entry in draw()]
    assert submits == sorted(submits)  # type: ignore[type-var]
    assert [entry[1] for entry in draw(arrivals="all")] == [0.0] * 40
    assert {entry[3] for entry in draw()} == {"Llama-2-7b", "Llama-2-13b", "Llama-3.1-70B"}


def test_poisson_arrivals_have_the_mean_gap(example: Scenario) -> None:
    assert isinstance(example.jobs, GeneratedJobsSection)
    generator = example.jobs.generator.model_copy(update={"count": 2000, "mean_gap": 60.0})
    jobs = generated_jobs(generator, example.cluster, TRAINING, Elasticity.RESIZE, 0.0, 1.0)
    assert jobs[-1].submit_s / 1999 == pytest.approx(60.0, rel=0.08)


STANDARD = "job_id,submit_s,tenant,gpus,nodes,duration_s,status,kind\n"


def test_a_trace_is_read_in_order_of_submission_and_failed_jobs_count(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(STANDARD + "b,20,t,8,1,5,FAILED,x\na,10,u,16,2,7.5,COMPLETED,x\n")
    assert read_trace(path) == (TraceRow("a", 10.0, "u", 16, 7.5), TraceRow("b", 20.0, "t", 8, 5.0))


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ("a,0,t,8,1,5,x,x\na,1,t,8,1,5,x,x\n", 3),
        ("a,0,t,0,1,5,x,x\n", 2),
        ("a,0,t,1.5,1,5,x,x\n", 2),
        ("a,-1,t,8,1,5,x,x\n", 2),
        ("a,0,t,8,1,nan,x,x\n", 2),
    ],
)
def test_a_bad_row_of_a_trace_is_named(tmp_path: Path, rows: str, line: int) -> None:
    path = tmp_path / "t.csv"
    path.write_text(STANDARD + rows)
    with pytest.raises(SpecError) as caught:
        read_trace(path)
    assert caught.value.issues[0].line == line


def test_the_full_philly_trace_is_sorted_and_its_doubles_are_one_job(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 00:00:10,5,1,5,a\n2017-10-09 00:00:00,6,2,12,b\n2017-10-09 00:00:10,5,1,5,a\n"
    )
    assert read_trace(path) == (TraceRow("1", 0.0, "b", 2, 6.0), TraceRow("0", 10.0, "a", 1, 5.0))


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "jobs", "days"),
    [
        ("kalos.csv", 319, 90.04),
        ("helios_venus_2vc.csv", 1867, 25.72),
        ("philly_ge4gpu.csv", 3802, 108.76),
        ("philly_full.csv.gz", 82182, 108.9),
    ],
)
def test_the_real_traces_are_read_whole(data_dir: Path, name: str, jobs: int, days: float) -> None:
    rows = read_trace(data_dir / "data/traces" / name)
    assert len(rows) == jobs
    assert rows[-1].submit_s / 86400 == pytest.approx(days, abs=0.1)


@pytest.mark.shared_data
def test_the_jobs_of_a_real_trace_hold_the_gpus_and_the_time_that_were_traced(data_dir: Path) -> None:
    scenario = load_scenario(data_dir / "scenarios/real12-kalos.yaml")
    rows = {row.job_id: row for row in read_trace(data_dir / "data/traces/kalos.csv")}
    for job in jobs_of(scenario):
        row, named = rows[job.spec.job_id], job.spec.parallelism.named_stages
        assert named is not None
        assert 0 <= named * job.spec.parallelism.gpus_per_stage - row.gpus < named
        alone_s = solo_iteration_s(replace(job.spec), scenario.cluster, named)
        assert abs(job.actual_steps * alone_s - row.duration_s) <= alone_s


def test_a_job_that_is_listed_keeps_what_the_published_layers_do(make_scenario: MakeScenario) -> None:
    """Whatever would run it, as all other jobs of replays."""
    jobs = (
        "  - {name: a, submit: 0s, model: {preset: llama-2-7b}, training: {steps: 1}, run: {builtin: gpt}}\n"
    )
    (job,) = jobs_of(make_scenario(jobs))
    assert not job.spec.training.builtin_layers
