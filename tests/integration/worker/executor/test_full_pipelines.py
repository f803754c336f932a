"""Whole workers whose steps run one into the other: they learn what one process learns, and all end together."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.protocol import WorkerPlan, WorkerRateSchedule
from agents.worker.optimizer import layer_tensors
from scheduler.pipeline.plan import layouts
from scheduler.pipeline.plan.generate import hanayo
from tests.integration.worker.executor.serial import Replica, serial
from tests.plans import together
from tests.wire_plans import wire_plan

pytestmark = pytest.mark.xdist_group("stage-workers")

ENDLESS = 100_000
POISONED = Path(__file__).with_name("poisoned_worker.py")
RATES = WorkerRateSchedule(warmup_steps=2, decay="cosine")
RULES = {
    "paci": {"weight_rule": "current", "update_every": 2},
    "paci-wide": {"weight_rule": "current", "update_every": 1, "window": [6, 3, 1]},
    "2bw": {"weight_rule": "double-buffered", "update_every": 2},
    "2bw-ef": {"weight_rule": "double-buffered", "update_every": 4, "error_feedback": 1.0},
    "prediction": {"weight_rule": "predicted"},
    "stashing": {"weight_rule": "stashed"},
}


def ended(workers: list[Any]) -> None:
    assert [worker.exit_code() for worker in workers] == [0] * len(workers), "\n".join(
        worker.log.read_text() for worker in workers
    )


def assert_equal(gangs: Any, plan: WorkerPlan, step: int, right: Replica) -> None:
    """Weights and moments of a checkpoint, difference 0.0."""
    names = ["embedding", *(f"layer-{layer:04d}" for layer in range(plan.model.layers)), "head"]
    part = gangs.checkpoints.read(step, names)
    for stage in right.stages:
        for name, layer in stage.module.named_layers():
            for tensor, value in layer_tensors(stage.optimizer, layer).items():
                assert torch.equal(part.files[name][tensor], value), f"{name}.{tensor}"


@pytest.mark.parametrize("rule", RULES)
def test_they_come_to_the_weights_of_one_process_to_the_last_bit(gangs: Any, rule: str) -> None:
    """A checkpoint is due after three steps and after six, so then the pipeline is empty, and never else."""
    plan = gangs.plan(3, steps=7, checkpoint_every=3, rate_schedule=RATES, **RULES[rule])

    workers = gangs.start(plan, 3)

    ended(workers)
    losses, right = serial(plan, [3, 3, 1])
    assert list(workers[-1].losses.values()) == pytest.approx(losses, rel=1e-6)
    assert_equal(gangs, plan, 7, right)


def test_gpipe_is_emptied_after_every_step(gangs: Any) -> None:
    """All forwards first, and then every micro-batch would wait for those before it."""
    plan = gangs.plan(3, steps=3, checkpoint_every=3, **{**RULES["paci"], "window": [4, 4, 4]})

    workers = gangs.start(plan, 3)

    ended(workers)
    assert_equal(gangs, plan, 3, serial(plan, [1, 1, 1])[1])


def test_emptied_after_every_step_they_would_come_to_others(gangs: Any) -> None:
    """So the test above tells whether the pipeline was emptied."""
    plan = gangs.plan(3, steps=7, checkpoint_every=3, rate_schedule=RATES, **RULES["paci"])
    kept_full, emptied = serial(plan, [3, 3, 1])[0], serial(plan, [1] * 7)[0]

    assert kept_full[0] == emptied[0]
    assert kept_full[3:] != pytest.approx(emptied[3:], rel=1e-4)


@pytest.mark.parametrize("binding", ["strict", "hint"])
def test_replicas_come_to_the_weights_of_one_process_to_the_last_bit(gangs: Any, binding: str) -> None:
    plan = gangs.plan(2, steps=4, checkpoint_every=4, binding=binding, **RULES["paci"])

    workers = gangs.start(plan, 2, data=2)

    ended(workers)
    losses, right = serial(plan, [4], replicas=2)
    assert list(workers[2].losses.values()) == pytest.approx(losses, rel=1e-6)
    if binding == "strict":
        assert_equal(gangs, plan, 4, right)


def test_replicas_of_ranks_with_several_stages_update_in_the_order_of_the_plan(gangs: Any) -> None:
    plan, port = together(layouts.vee(2), hanayo(2, 1, 4)), gangs.free_port()
    changes = {"checkpoint_uri": gangs.checkpoint_root.as_uri(), **RULES["paci"]}

    workers = [
        worker
        for rank in range(2)
        for worker in gangs.start(
            wire_plan(plan, rank, steps=8, **changes), 2, data=2, ranks=[2 * rank, 2 * rank + 1], port=port
        )
    ]

    ended(workers)
    losses = list(workers[0].losses.values())
    assert losses[-1] < losses[0]


def test_from_a_checkpoint_they_go_on_to_the_same_bits(gangs: Any) -> None:
    changes = {"checkpoint_every": 3, "checkpoint_keep": 5, **RULES["paci"]}
    whole = gangs.start(gangs.plan(3, steps=9, **changes), 3)
    ended(whole)
    right = {path.name: path.read_bytes() for path in (gangs.checkpoint_root / "step-00000009").iterdir()}

    resumed = gangs.start(gangs.plan(3, steps=9, resume_step=6, **changes), 3)

    ended(resumed)
    assert resumed[-1].losses == {step: loss for step, loss in whole[-1].losses.items() if step > 6}
    found = {path.name: path.read_bytes() for path in (gangs.checkpoint_root / "step-00000009").iterdir()}
    assert found == right


@pytest.mark.parametrize("data", [1, 2])
@pytest.mark.parametrize("asked", [0, -1])
def test_all_ranks_stop_after_the_same_step(gangs: Any, data: int, asked: int) -> None:
    plan = gangs.plan(2, steps=ENDLESS, checkpoint_every=ENDLESS, **RULES["paci"])
    workers = gangs.start(plan, 2, data=data)
    gangs.until(lambda: len(workers[data].losses) >= 3, "three steps")
    workers[asked].send(signal.SIGTERM)

    ended(workers)
    assert [worker.end["cause"] for worker in workers] == ["stopped"] * len(workers)
    assert gangs.checkpoints.steps() == [max(workers[data].losses)]


def test_a_roll_back_has_the_pipeline_emptied_after_the_same_step_everywhere(gangs: Any) -> None:
    plan = gangs.plan(3, steps=40, checkpoint_every=40, **RULES["paci"])

    workers = gangs.start(plan, 3, script=POISONED, env={"POISONED": "1"})

    ended(workers)
    logs = [worker.log.read_text() for worker in workers]
    assert all("not finite: the update is taken back" in log for log in logs)
    emptied = [re.findall(r"the pipeline was emptied after step (\d+)", log) for log in logs]
    assert emptied[0] == emptied[1] == emptied[2]
    assert emptied[0]
    losses = workers[-1].losses
    assert list(losses) == list(range(1, 41))
    assert sum(loss != loss for loss in losses.values()) == 1, "of the step that has the poisoned micro-batch"


def test_where_going_back_does_not_help_all_end_with_the_cause(gangs: Any) -> None:
    plan = gangs.plan(2, steps=ENDLESS, checkpoint_every=ENDLESS, **RULES["paci"])

    workers = gangs.start(plan, 2, script=POISONED, env={"POISONED": str(ENDLESS)})

    codes = [worker.exit_code() for worker in workers]
    assert codes[1] == 20, workers[1].log.read_text()
    assert codes[0] in (12, 20), "as the last stage ends, the first has lost it or is as far"
    assert workers[1].end["cause"] == "diverged"
    assert "a smaller learning_rate, or an earlier checkpoint" in workers[1].end["detail"]


def test_steps_are_told_one_by_one_with_the_time_that_each_took(gangs: Any) -> None:
    plan = gangs.plan(2, steps=12, checkpoint_every=12, **RULES["paci"])
    begin_s = time.monotonic()

    workers = gangs.start(plan, 2)

    ended(workers)
    took_s = time.monotonic() - begin_s
    steps = workers[-1].reports("step")
    assert [step["step"] for step in steps] == list(range(1, 13))
    assert sum(step["step_time_s"] for step in steps) < took_s, "no time is told of two steps"
    assert all(0 < step["compute_s"] <= step["step_time_s"] for step in steps)
    assert [step["step"] for step in steps if "send_s" in step] == [12], "the pipeline is emptied once"
