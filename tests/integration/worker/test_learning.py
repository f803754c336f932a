"""How a pipeline learns, beside its loss: gradients clipped over all stages, the rate's schedule, the optimizer."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from agents.protocol import WorkerPlan, WorkerRateSchedule
from agents.worker.data import load_corpus
from agents.worker.learning_rate import rate_factor
from agents.worker.model import cross_entropy
from agents.worker.optimizer import make_muon, make_optimizer
from agents.worker.stage import StageModule

pytestmark = pytest.mark.xdist_group("stage-workers")

TOLERANCE = 1e-4


def one_process(plan: WorkerPlan) -> tuple[list[float], list[float]]:
    """Losses and gradient norms of the plain loop with torch's own clipping."""
    whole = plan.model_copy(update={"layers_per_stage": [plan.model.layers]})
    module = StageModule(whole, 0, torch.device("cpu"))
    optimizer: torch.optim.Optimizer = (
        make_muon(module.named_layers(), plan.learning_rate)
        if plan.optimizer == "muon"
        else make_optimizer(module, plan.learning_rate)
    )
    corpus = load_corpus(plan.corpus, plan.model.seq_len)
    losses, norms = [], []
    for step in range(1, plan.steps + 1):
        optimizer.zero_grad()
        total = 0.0
        batch = corpus.batch(plan.seed, step, 0, plan.micro_batch * plan.micro_batches, plan.model.seq_len)
        for inputs, targets in zip(*(part.split(plan.micro_batch) for part in batch), strict=True):
            loss = cross_entropy(module(inputs), targets) / plan.micro_batches
            loss.backward()
            total += loss.item()
        most = math.inf if plan.clip_norm is None else plan.clip_norm
        norms.append(torch.nn.utils.clip_grad_norm_(module.parameters(), most).item())
        for group in optimizer.param_groups:
            group["lr"] = plan.learning_rate * rate_factor(plan.rate_schedule, step, plan.steps)
        optimizer.step()
        losses.append(total)
    return losses, norms


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="as-it-is"),
        pytest.param({"clip_norm": 0.3}, id="clipped"),
        pytest.param({"clip_norm": 0.3, "binding": "hint"}, id="clipped-on-our-executor"),
        pytest.param(
            {
                "optimizer": "muon",
                "rate_schedule": WorkerRateSchedule(warmup_steps=2, decay="cosine", final=0.1),
            },
            id="muon-with-a-schedule",
        ),
    ],
)
def test_a_pipeline_learns_what_one_process_does_and_tells_its_gradient_norm(
    gangs: Any, changes: dict[str, Any]
) -> None:
    plan = gangs.plan(3, steps=5, **changes)

    workers = gangs.start(plan, 3)

    assert [worker.exit_code() for worker in workers] == [0] * 3, workers[-1].log.read_text()
    losses, norms = one_process(plan)
    assert list(workers[-1].losses.values()) == pytest.approx(losses, abs=TOLERANCE)
    steps = workers[-1].reports("step")
    assert [step["grad_norm"] for step in steps] == pytest.approx(norms, rel=1e-3)
    if plan.clip_norm is not None:
        assert max(norms) > plan.clip_norm, "otherwise nothing was clipped"


def test_a_step_tells_what_its_time_went_into(gangs: Any) -> None:
    workers = gangs.start(gangs.plan(2, steps=3), 2)

    assert [worker.exit_code() for worker in workers] == [0, 0], workers[-1].log.read_text()
    for step in workers[-1].reports("step"):
        assert step["compute_s"] > 0
        assert step["send_s"] >= 0
        assert step["compute_s"] + step["send_s"] <= step["step_time_s"]


def test_under_a_rule_that_updates_within_a_step_no_norm_is_told(gangs: Any) -> None:
    workers = gangs.start(gangs.plan(2, steps=2, weight_rule="current"), 2)

    assert [worker.exit_code() for worker in workers] == [0, 0], workers[-1].log.read_text()
    assert all("grad_norm" not in step for step in workers[-1].reports("step"))


def test_clipping_is_refused_where_no_step_has_all_gradients(gangs: Any) -> None:
    workers = gangs.start(gangs.plan(2, weight_rule="current", clip_norm=1.0), 2)

    assert [worker.exit_code() for worker in workers] == [2, 2]
    assert "clip_norm is 1" in workers[0].end["detail"]
