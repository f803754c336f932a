"""A pipeline learns what the same model learns in one process, wherever it is cut and whatever its window."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agents.protocol import WorkerPlan
from agents.worker.data import load_corpus
from agents.worker.model import cross_entropy
from agents.worker.optimizer import make_optimizer
from agents.worker.stage import StageModule

pytestmark = pytest.mark.xdist_group("stage-workers")

TOLERANCE = 1e-4


def one_process(plan: WorkerPlan, replicas: int = 1) -> list[float]:
    """Losses of the plain loop: the whole model, all micro-batches of all replicas one after the other."""
    whole = plan.model_copy(update={"layers_per_stage": [plan.model.layers]})
    module = StageModule(whole, 0, torch.device("cpu"))
    optimizer = make_optimizer(module, plan.learning_rate)
    corpus = load_corpus(plan.corpus, plan.model.seq_len)
    losses = []
    for step in range(1, plan.steps + 1):
        optimizer.zero_grad()
        total = 0.0
        for replica in range(replicas):
            sequences = plan.micro_batch * plan.micro_batches
            batch = corpus.batch(plan.seed, step, replica, sequences, plan.model.seq_len)
            for inputs, targets in zip(*(part.split(plan.micro_batch) for part in batch), strict=True):
                loss = cross_entropy(module(inputs), targets) / (plan.micro_batches * replicas)
                loss.backward()
                total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


@pytest.mark.parametrize(
    ("stages", "changes"),
    [
        pytest.param(3, {}, id="1f1b-of-3"),
        pytest.param(3, {"window": [4, 4, 4], "recompute": "full", "steps": 6}, id="gpipe-of-3"),
        pytest.param(3, {"window": [4, 3, 1], "recompute": "selective", "steps": 6}, id="slack-of-3"),
        pytest.param(2, {"dtype": "bf16", "steps": 6}, id="bf16-of-2"),
        pytest.param(1, {"steps": 4}, id="alone"),
    ],
)
def test_losses_are_those_of_one_process(gangs: Any, stages: int, changes: dict[str, Any]) -> None:
    plan = gangs.plan(stages, **changes)

    workers = gangs.start(plan, stages)

    assert [worker.exit_code() for worker in workers] == [0] * stages, workers[-1].log.read_text()
    assert list(workers[-1].losses) == list(range(1, plan.steps + 1))
    assert list(workers[-1].losses.values()) == pytest.approx(one_process(plan), abs=TOLERANCE)
    assert all(not worker.losses for worker in workers[:-1]), "only the last stage reports steps"
    assert all(worker.reports("ready") and worker.end["cause"] == "finished" for worker in workers)


def test_replicas_learn_what_one_process_learns_from_all_their_data(gangs: Any) -> None:
    plan = gangs.plan(2, steps=6)

    workers = gangs.start(plan, 2, data=2)

    assert [worker.exit_code() for worker in workers] == [0] * 4, workers[-1].log.read_text()
    steps = workers[2].reports("step")
    assert [step["loss"] for step in steps] == pytest.approx(one_process(plan, replicas=2), abs=TOLERANCE)
    assert steps[0]["tokens"] == 2 * plan.micro_batch * plan.micro_batches * plan.model.seq_len
    assert not workers[3].losses, "the second replica reports no steps"


def test_every_rank_tells_how_busy_it_was_and_the_first_where_the_checkpoint_is(gangs: Any) -> None:
    plan = gangs.plan(2, steps=7)

    workers = gangs.start(plan, 2)

    assert [worker.exit_code() for worker in workers] == [0, 0]
    for worker in workers:
        for line in worker.reports("busy"):
            assert line["from_s"] < line["to_s"]
            assert 0 < line["busy_fraction"] <= 1
        assert worker.reports("busy")
    told = [(line["step"], line["uri"]) for line in workers[0].reports("checkpoint")]
    root = gangs.checkpoint_root.as_uri()
    assert told == [(5, f"{root}/step-00000005"), (7, f"{root}/step-00000007")]
    assert gangs.checkpoints.steps() == [5, 7]
    assert not workers[1].reports("checkpoint")
