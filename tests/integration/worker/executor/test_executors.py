"""Two executors behind one plan: each computes what the plan says, and both come to the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from agents.worker.data import load_corpus
from agents.worker.executor.rules.choice import RuleChoice, weight_rule
from agents.worker.model import cross_entropy
from agents.worker.study.serial import SerialPipeline
from agents.worker.trained_stage import TrainedStage
from scheduler.pipeline.plan import layouts, orders, split_orders
from scheduler.pipeline.plan.generate import generate
from scheduler.pipeline.plan.ir import Plan
from scheduler.pipeline.plan.passes import plan_of
from scheduler.pipeline.plan.timing import timeline
from tests.plans import every_hop
from tests.wire_plans import rank_plans, wire_plan

pytestmark = pytest.mark.xdist_group("stage-workers")

TOLERANCE = 1e-6


def generated() -> Plan:
    pipeline = every_hop(layouts.line(2), orders.gpipe(2, 6), 1.0).pipeline
    return plan_of(pipeline, generate(pipeline, 6).order)


PLANS: Mapping[str, Callable[[], Plan]] = {
    "1f1b": lambda: every_hop(layouts.line(3), orders.one_f_one_b(3, 4), 1.0),
    "gpipe": lambda: every_hop(layouts.line(2), orders.gpipe(2, 4), 1.0),
    "slack": lambda: every_hop(layouts.line(3), orders.windowed((5, 3, 1), 6), 1.0),
    "zb-h1": lambda: every_hop(layouts.line(3), split_orders.zb_h1(3, 4), 1.0),
    "generated": generated,
    "zb-v": lambda: every_hop(layouts.vee(2), split_orders.zb_v(2, 4), 1.0),
    "interleaved": lambda: every_hop(layouts.loop(2, 2), orders.interleaved(2, 2, 4), 1.0),
}


@pytest.mark.parametrize("name", PLANS)
def test_both_executors_run_the_plan_as_the_scheduler_times_it_and_come_to_the_same(
    execute: Any, name: str
) -> None:
    plan = PLANS[name]()
    timed = [[str(each) for each in actions if each.op.computes] for actions in timeline(plan).actions]

    torchs, ours = execute(plan, "torch"), execute(plan, "ours")

    for step in range(2):
        assert torchs.traces(step) == timed
        assert ours.traces(step) == timed
    for one, other in zip(torchs.losses, ours.losses, strict=True):
        assert one == pytest.approx(other, abs=TOLERANCE)
    assert_same(torchs.gradients, ours.gradients)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_a_split_backward_has_the_gradients_of_one_process(execute: Any, recompute: str) -> None:
    plan = PLANS["zb-v"]()

    found = execute(plan, "ours", steps=1, recompute=recompute)

    losses, gradients = one_process(plan)
    assert found.losses[0] == pytest.approx(losses, abs=TOLERANCE)
    assert_same(found.gradients, gradients)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-v"])
def test_a_hint_comes_to_the_same_while_messages_overtake_each_other(execute: Any, name: str) -> None:
    plan = PLANS[name]()
    strict = execute(plan, "ours")
    caps = [cap + 4 for cap in plan.caps]

    free = execute(plan, "ours", delay_s=0.02, binding="hint", window=caps)

    assert free.traces() != strict.traces(), "messages that come late change what is ready"
    for one, other in zip(free.traces(), strict.traces(), strict=True):
        assert sorted(one) == sorted(other)
    for one_step, other_step in zip(free.losses, strict.losses, strict=True):
        assert one_step == pytest.approx(other_step, abs=TOLERANCE)
    assert_same(free.gradients, strict.gradients)


def test_a_window_runs_on_our_executor_as_well(execute: Any) -> None:
    plan = PLANS["slack"]()

    found = execute(plan, "ours", order=None)

    assert found.traces() == [[str(each) for each in rank if each.op.computes] for rank in plan.actions]


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("1f1b", RuleChoice("current")),
        ("1f1b", RuleChoice("predicted")),
        ("1f1b", RuleChoice("stashed")),
        ("1f1b", RuleChoice("double-buffered", 4, 1.0)),
    ],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
def test_a_weight_rule_learns_in_processes_what_it_learns_in_one(
    execute: Any, name: str, choice: RuleChoice
) -> None:
    plan = PLANS[name]()
    settings = {"update_every": choice.every, "error_feedback": choice.error_feedback}

    found = execute(plan, "ours", weight_rule=choice.name, steps=3, **settings)

    for one, other in zip(found.losses, serial_losses(plan, choice, 3), strict=True):
        assert one == pytest.approx(other, abs=TOLERANCE)


def serial_losses(plan: Plan, choice: RuleChoice, steps: int) -> list[list[float]]:
    """Of every step, the micro-batches', in one process that runs the actions of all ranks."""
    told = wire_plan(plan, 0, weight_rule=choice.name)
    stages = [TrainedStage.of(told, index, torch.device("cpu")) for index in range(len(plan.caps))]
    rules = [
        weight_rule(
            choice,
            [layer for _, layer in stage.module.named_layers()],
            stage.optimizer,
            lambda tensors: None,
            micro_batches=told.micro_batches,
            in_flight=plan.caps[stage.index],
        )
        for stage in stages
    ]
    pipeline = SerialPipeline([stage.module for stage in stages], rules, cross_entropy)
    order = [each.computations for each in rank_plans(plan, weight_rule=choice.name)]
    corpus = load_corpus(None, told.model.seq_len)
    losses = []
    for step in range(1, steps + 1):
        inputs, targets = (
            part.split(told.micro_batch)
            for part in corpus.batch(
                told.seed, step, 0, told.micro_batch * told.micro_batches, told.model.seq_len
            )
        )
        losses.append(pipeline.iteration(order, lambda each, x=inputs, y=targets: (x[each], y[each])))
    return losses


def assert_same(one: Mapping[str, list[float]], other: Mapping[str, list[float]]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert values == pytest.approx(other[name], abs=TOLERANCE), name


def one_process(plan: Plan) -> tuple[list[float], dict[str, list[float]]]:
    """(losses, gradients) of the first step of the plain loop."""
    told = wire_plan(plan, 0, order=None)
    stages = [TrainedStage.of(told, index, torch.device("cpu")) for index in range(len(plan.pipeline.stages))]
    corpus = load_corpus(None, told.model.seq_len)
    sequences = told.micro_batch * told.micro_batches
    batch = corpus.batch(told.seed, 1, 0, sequences, told.model.seq_len)
    losses = []
    for inputs, targets in zip(*(part.split(told.micro_batch) for part in batch), strict=True):
        stream = inputs
        for stage in stages:
            stream = stage.module(stream)
        loss = cross_entropy(stream, targets)
        (loss / told.micro_batches).backward()
        losses.append(loss.item())
    gradients = {
        f"{stage.index}.{name}": parameter.grad.flatten().tolist()
        for stage in stages
        for name, parameter in stage.module.named_parameters()
        if parameter.grad is not None
    }
    return losses, gradients
