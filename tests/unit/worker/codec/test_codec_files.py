"""A codec comes back from a checkpoint as it was, or that of the nearest boundary, or the reader is told why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agents.protocol import WorkerCodec, WorkerModel, WorkerPlan
from agents.worker.causes import Cause, WorkerEndError
from agents.worker.checkpoint.folder import CheckpointFolder
from agents.worker.checkpoint.local_store import LocalStore
from agents.worker.checkpoint.manifest import FileEntry
from agents.worker.codec.files import coded_boundaries
from agents.worker.codec.stage import CodedStage
from agents.worker.codec.training import CodecTraining
from agents.worker.optimizer import make_optimizer
from agents.worker.stage import StageModule
from agents.worker.trained_stage import TrainedStage

MODEL = WorkerModel(layers=6, hidden=16, heads=2, kv_heads=2, head_dim=8, ffn=16, vocab=256, seq_len=8)
CPU = torch.device("cpu")


class Stage:
    """One stage of a gang, without its neighbours."""

    def __init__(
        self, cut: list[int], index: int, boundaries: list[int], rank: int = 4, seed: int = 0
    ) -> None:
        codec = WorkerCodec(rank=rank, boundaries=boundaries)
        self.plan = WorkerPlan(
            model=MODEL, steps=1, micro_batch=1, micro_batches=1, dtype="fp32", recompute="none",
            layers_per_stage=cut, window=[1] * len(cut), learning_rate=0.01, seed=seed, codec=codec,
            checkpoint_uri="file:///x", checkpoint_every=1,
        )  # fmt: skip
        self.module = StageModule(self.plan, index, CPU)
        self.coded = CodedStage(self.plan, codec, index, self.module, CPU)
        self.codec = CodecTraining(self.coded, self.plan.learning_rate)
        self.optimizer = make_optimizer(self.module, self.plan.learning_rate)
        self.trained = TrainedStage(index, self.module, self.coded, self.optimizer, self.codec, None)
        self.is_first = index == 0

    def read(self, folder: CheckpointFolder) -> None:
        """Go on from the checkpoint of step 2."""
        read(folder, self.trained)

    def train(self, steps: int) -> None:
        ids = torch.arange(8).reshape(1, 8)
        for _ in range(steps):
            width = 4 if self.coded.receiver is not None else MODEL.hidden
            inputs = (ids,) if self.is_first else (torch.randn(1, 8, width), ids.int())
            given = self.coded(*inputs)
            (given[0] if isinstance(given, tuple) else given).square().sum().backward()
            self.codec.anchors.step()
            if self.codec.spel is not None and self.coded.sender is not None:
                assert self.coded.sender.projector.grad is not None
                self.codec.spel.step(self.coded.sender.projector.grad)
            self.optimizer.step()
            self.coded.zero_grad()

    def state(self) -> dict[str, torch.Tensor]:
        """All that the codecs of the stage have learned."""
        state = {
            f"{end.side}.{name}": value for end in self.codec.ends for name, value in end.state_dict().items()
        }
        state |= {f"{end.side}.basis": end.anchors.basis for end in self.codec.ends}
        if self.codec.spel is not None:
            state["momentum"] = self.codec.spel.momentum
        for end in self.codec.ends:
            moments = self.codec.anchors.state[end.anchors.coordinates]
            state |= {f"{end.side}.{name}": value for name, value in moments.items()}
        return {name: value.clone() for name, value in state.items()}


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(LocalStore(tmp_path), "a1")


def written(folder: CheckpointFolder, cut: list[int], boundaries: list[int]) -> list[Stage]:
    """A checkpoint after two steps of a gang that is cut so."""
    stages = [Stage(cut, index, boundaries) for index in range(len(cut))]
    files: dict[str, FileEntry] = {}
    for stage in stages:
        stage.train(2)
        files |= folder.write(2, stage.trained.checkpoint_tensors())
    folder.publish(stages[0].plan, 2, "digest", files)
    return stages


def read(folder: CheckpointFolder, stage: TrainedStage) -> None:
    manifest = folder.manifest(2)
    assert manifest is not None
    stage.restore(folder.read(2, stage.names_in(manifest.files)))


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_both_ends_come_back_with_momentum_and_moments(folder: CheckpointFolder) -> None:
    for index, stage in enumerate(written(folder, [2, 2, 2], [0, 1])):
        again = Stage([2, 2, 2], index, [0, 1], seed=1)  # another seed: other bases and projectors
        assert again.codec.ends
        again.read(folder)

        assert same(again.state(), stage.state())
        assert again.coded.sender is None or again.codec.spel is not None
        if again.codec.spel is not None and again.coded.sender is not None:
            again.codec.spel.projector.zero_()
            assert not again.coded.sender.projector.any(), "SPEL moves the projector that the sender uses"


def test_another_cut_finds_the_codec_of_the_same_boundary(folder: CheckpointFolder) -> None:
    sender = written(folder, [2, 2, 2], [0, 1])[1]

    again = Stage([4, 2], 0, [0])
    again.read(folder)

    expected = {name: value for name, value in sender.state().items() if not name.startswith("receiver")}
    assert same(again.state(), expected)


def test_a_boundary_that_moved_goes_on_from_the_nearest(
    folder: CheckpointFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind layers 0 and 4 there are codecs; behind 3 there was none."""
    last = written(folder, [1, 4, 1], [0, 1])[1]

    again = Stage([4, 2], 0, [0])
    again.read(folder)

    assert torch.equal(again.state()["sender.projector"], last.state()["sender.projector"])
    assert "behind layer 3 goes on from that behind layer 4" in capsys.readouterr().out


def test_a_checkpoint_without_codecs_leaves_them_as_they_begin(folder: CheckpointFolder) -> None:
    whole = Stage([6], 0, [3])
    whole.train(1)
    without = replace(whole.trained, codec=None)
    folder.publish(whole.plan, 2, "digest", folder.write(2, without.checkpoint_tensors()))

    again, fresh = Stage([3, 3], 0, [0]), Stage([3, 3], 0, [0])
    again.read(folder)

    assert again.coded.sender is not None
    assert fresh.coded.sender is not None
    assert torch.equal(again.coded.sender.projector, fresh.coded.sender.projector)
    assert not again.codec.anchors.state


def test_a_job_without_a_codec_reads_the_layers_of_a_coded_one(folder: CheckpointFolder) -> None:
    first, second = written(folder, [3, 3], [0])

    whole = Stage([6], 0, [3])
    read(folder, replace(whole.trained, codec=None))

    learned = dict(first.module.named_parameters()) | dict(second.module.named_parameters())
    assert all(torch.equal(value, learned[name]) for name, value in whole.module.named_parameters())


def test_another_rank_is_refused_with_both_and_what_would_be_right(folder: CheckpointFolder) -> None:
    written(folder, [3, 3], [0])

    with pytest.raises(
        WorkerEndError, match=r"boundary-0002-sender.*rank 4, the plan's 5: go on with"
    ) as caught:
        Stage([3, 3], 0, [0], rank=5).read(folder)
    assert caught.value.cause is Cause.CHECKPOINT_UNUSABLE


def test_a_boundary_counts_with_both_of_its_ends_alone() -> None:
    files = [
        "boundary-0001-sender.safetensors",
        "boundary-0003-receiver.safetensors",
        "layer-0001.safetensors",
    ]

    assert coded_boundaries(files) == set()
    assert coded_boundaries([*files, "boundary-0001-receiver.safetensors"]) == {1}
