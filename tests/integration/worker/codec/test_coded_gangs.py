"""A gang with coded boundaries learns what the same model learns in one process, and sends what was promised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.protocol import WorkerCodec, WorkerPlan
from agents.worker.codec.stiefel import Spel, deviation
from agents.worker.codec.training import STEP_SIZE, gradient_of
from agents.worker.codec.whole import CodedModel
from agents.worker.data import load_corpus
from agents.worker.model import cross_entropy
from agents.worker.optimizer import make_optimizer

pytestmark = pytest.mark.xdist_group("stage-workers")

CPU = torch.device("cpu")
COUNTED = Path(__file__).with_name("counted_worker.py")
TOLERANCE = 1e-4


class OneProcess:
    """Trains all stages in one process: a backward pass gives a projector all of its gradient."""

    def __init__(self, plan: WorkerPlan) -> None:
        assert plan.codec is not None
        self.plan = plan
        self.model = CodedModel(plan, plan.codec, CPU)
        self.spels = [
            Spel(projector.data, STEP_SIZE * plan.learning_rate) for projector in self.model.projectors
        ]
        trained = torch.nn.ModuleList([self.model.layers, *self.model.anchors])
        self.optimizer = make_optimizer(trained, plan.learning_rate)

    def losses(self, replicas: int = 1) -> list[float]:
        plan, corpus = self.plan, load_corpus(self.plan.corpus, self.plan.model.seq_len)
        losses = []
        for step in range(1, plan.steps + 1):
            total = 0.0
            for replica in range(replicas):
                sequences = plan.micro_batch * plan.micro_batches
                batch = corpus.batch(plan.seed, step, replica, sequences, plan.model.seq_len)
                for inputs, targets in zip(*(part.split(plan.micro_batch) for part in batch), strict=True):
                    loss = cross_entropy(self.model(inputs), targets) / (plan.micro_batches * replicas)
                    loss.backward()
                    total += loss.item()
            for projector, spel in zip(self.model.projectors, self.spels, strict=True):
                spel.step(gradient_of(projector))
            self.optimizer.step()
            self.model.zero_grad()
            losses.append(total)
        return losses


@pytest.mark.parametrize(
    ("stages", "boundaries", "changes"),
    [
        pytest.param(2, [0], {}, id="one-boundary"),
        pytest.param(4, [0, 2], {}, id="two-of-three-boundaries"),
        pytest.param(3, [0, 1], {"window": [4, 3, 1]}, id="a-stage-with-both-ends"),
        pytest.param(2, [0], {"dtype": "bf16"}, id="bf16"),
        pytest.param(3, [0, 1], {"binding": "hint"}, id="by-what-arrives"),
    ],
)
def test_losses_projectors_and_their_gradients_are_those_of_one_process(
    gangs: Any, stages: int, boundaries: list[int], changes: dict[str, Any]
) -> None:
    codec = WorkerCodec(rank=4, boundaries=boundaries)
    plan = gangs.plan(stages, steps=5, codec=codec, learning_rate=0.01, **changes)

    workers = gangs.start(plan, stages)
    assert [worker.exit_code() for worker in workers] == [0] * stages, workers[-1].log.read_text()

    one = OneProcess(plan)
    assert list(workers[-1].losses.values()) == pytest.approx(one.losses(), abs=TOLERANCE)
    exact = plan.dtype == "fp32"
    for boundary, spel in zip(boundaries, one.spels, strict=True):
        sent, received = (written(gangs, plan, boundary, side) for side in ("sender", "receiver"))
        assert torch.equal(sent["projector"], received["projector"])
        assert deviation(sent["projector"]) < 1e-5
        if exact:
            torch.testing.assert_close(sent["projector"], spel.projector, atol=2e-5, rtol=0)
            scale = float(spel.momentum.abs().max())
            torch.testing.assert_close(sent["projector.momentum"], spel.momentum, atol=1e-3 * scale, rtol=0)


def written(gangs: Any, plan: WorkerPlan, boundary: int, side: str) -> dict[str, torch.Tensor]:
    layer = sum(plan.layers_per_stage[: boundary + 1]) - 1
    name = f"boundary-{layer:04d}-{side}"
    tensors: dict[str, torch.Tensor] = dict(gangs.checkpoints.read(plan.steps, [name]).files[name])
    return tensors


def test_replicas_learn_what_one_process_learns_from_all_their_data(gangs: Any) -> None:
    plan = gangs.plan(2, steps=4, codec=WorkerCodec(rank=4, boundaries=[0]), learning_rate=0.01)

    workers = gangs.start(plan, 2, data=2)

    assert [worker.exit_code() for worker in workers] == [0] * 4, workers[-1].log.read_text()
    assert list(workers[2].losses.values()) == pytest.approx(OneProcess(plan).losses(2), abs=TOLERANCE)


def test_the_full_rank_learns_what_an_uncoded_pipeline_learns(gangs: Any) -> None:
    """As long as anchors and projector stay as they begin: at the first step."""
    coded = gangs.start(gangs.plan(2, steps=1, codec=WorkerCodec(rank=32, boundaries=[0])), 2)
    uncoded = gangs.start(gangs.plan(2, steps=1), 2)

    assert [worker.exit_code() for worker in coded + uncoded] == [0] * 4
    assert coded[1].losses == pytest.approx(uncoded[1].losses, abs=1e-5)


def test_the_transport_carries_the_rank_over_the_width_of_the_bytes_and_ids_and_projectors(
    gangs: Any,
) -> None:
    rank, shape = 8, {"micro_batch": 64, "micro_batches": 4, "checkpoint_every": 1000}
    codec = WorkerCodec(rank=rank, boundaries=[0])

    forward, backward = bytes_a_step(gangs, codec=codec, **shape)
    plain_forward, plain_backward = bytes_a_step(gangs, codec=None, **shape)

    model = gangs.plan(2).model
    tokens = 64 * 4 * model.seq_len
    assert (plain_forward, plain_backward) == pytest.approx((tokens * model.hidden * 4,) * 2, rel=0.01)
    projector, ids = model.hidden * rank * 4, tokens * 4
    assert forward == pytest.approx(plain_forward * rank / model.hidden + ids + projector, rel=0.01)
    assert backward == pytest.approx(plain_backward * rank / model.hidden + projector, rel=0.01)


def bytes_a_step(gangs: Any, **changes: Any) -> tuple[float, float]:
    """What one step sends there and back: of runs of different length, so that what is sent once drops out."""
    received: dict[int, list[int]] = {}
    for steps in (2, 6):
        plan = gangs.plan(2, steps=steps, **changes)
        counts = [gangs.folder / f"bytes-{rank}" for rank in range(2)]
        workers = [
            gangs.start(plan, 2, ranks=[rank], port=port, env={"COUNT": str(counts[rank])}, script=COUNTED)[0]
            for port in [gangs.free_port()]
            for rank in range(2)
        ]
        assert [worker.exit_code() for worker in workers] == [0, 0], workers[0].log.read_text()
        received[steps] = [json.loads(count.read_text()) for count in counts]
    backward, forward = ((late - early) / 4 for early, late in zip(received[2], received[6], strict=True))
    return forward, backward
