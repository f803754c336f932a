"""The advice on updates of a job: the bounds of its own pipeline, and what they leave out."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.network import Residual
from scheduler.pipeline.plan.advice import UNKNOWN, JobAdvice, advise_job
from scheduler.pipeline.plan.setting import Setting
from scheduler.pipeline.plan.staleness import Budget, Training, advise
from scheduler.pipeline.plan.where import named
from scheduler.snapshot import Snapshot
from scheduler.spec.job import JobDocument, parse_job
from scheduler.spec.scenario import load_scenario
from scheduler.spec.updates import micro_batches_an_update

SCENARIO = Path(__file__).parents[3] / "deploy" / "examples" / "scenarios" / "three-regions.yaml"
SMALL = {
    "layers": 6, "hidden": 64, "heads": 4, "kv_heads": 4, "head_dim": 16, "ffn": 128, "gated_mlp": True,
    "vocab": 256, "seq_len": 32,
}  # fmt: skip
LARGE = {"preset": "llama-3.1-8b", "seq_len": 2048}


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """London, Paris and Frankfurt, nothing running."""
    scenario = load_scenario(SCENARIO)
    return Snapshot(1, scenario.start_s, scenario.cluster, {})


def job(model: dict[str, object], steps: int = 1000, **run: object) -> JobDocument:
    return parse_job(
        {
            "name": "advised",
            "model": model,
            "training": {"steps": steps, "micro_batches": 8},
            "run": {"builtin": "gpt", **run} if "command" not in run else run,
        }
    )


def advice(job: JobDocument, snapshot: Snapshot, chain: str = "eu-west-2:2,eu-west-3:2") -> JobAdvice | None:
    spec = job.to_spec("job-1", "default", 0.0)
    every = micro_batches_an_update(job)
    assert every is not None
    stand = named(chain, spec, snapshot)
    return advise_job(Setting.of(spec, Residual.of(snapshot), stand.placement), every)


def test_a_step_is_an_update_and_the_declared_micro_batches_are_the_time(snapshot: Snapshot) -> None:
    found = advice(job(LARGE), snapshot)

    assert found is not None
    assert found.budget == Budget(stages=4, micro_batches=8000, per_update=8, replicas=1, local_steps=8)
    assert found.advice == advise(found.budget)
    assert any("27% of the time in the bubble" in reason for reason in found.advice.reasons)
    assert "a rank's GPUs do not hold the whole model" in found.notes[0]
    assert "every: 8" in found.notes[1]
    assert found.notes[-1] == UNKNOWN


def test_updates_of_the_job_are_what_is_compared(snapshot: Snapshot) -> None:
    found = advice(job(LARGE, updates={"rule": "paci", "every": 2}), snapshot)

    assert found is not None
    assert found.budget.per_update == 2


def test_averaging_is_compared_where_each_rank_holds_the_model_and_replicas_meet(snapshot: Snapshot) -> None:
    found, short = advice(job(SMALL), snapshot), advice(job(SMALL, steps=3), snapshot)

    assert found is not None
    assert short is not None
    assert found.budget.replicas == 4
    assert Training.PERIODIC_AVERAGING in found.advice.bounds
    assert Training.PERIODIC_AVERAGING not in short.advice.bounds
    assert "4 replicas would not meet once" in short.notes[0]


def test_a_single_stage_has_nothing_to_be_advised(snapshot: Snapshot) -> None:
    assert advice(job(SMALL), snapshot, "eu-west-2:1") is None


def test_of_a_command_nobody_knows_when_it_updates() -> None:
    assert micro_batches_an_update(job(SMALL, command=["train"])) is None
