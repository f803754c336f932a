"""Training goes on while a checkpoint is written; it is told of when all stages have it, and a failure is not lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed import HashStore, PrefixStore, Store, TCPStore

from agents.protocol import WorkerModel, WorkerPlan
from agents.worker.causes import Cause, WorkerEndError
from agents.worker.checkpoint.folder import CheckpointFolder
from agents.worker.checkpoint.local_store import LocalStore
from agents.worker.checkpoint.writer import CheckpointWriter
from agents.worker.progress import Report
from agents.worker.settings import Settings, read_settings

PROMPT_S = 60.0
MODEL = WorkerModel(layers=1, hidden=16, heads=2, kv_heads=2, head_dim=8, ffn=16, vocab=256, seq_len=8)


@dataclass(frozen=True)
class HeldStore(LocalStore):
    """A disk that takes nothing until it is let."""

    asked: threading.Event = field(default_factory=threading.Event)
    let: threading.Event = field(default_factory=threading.Event)

    def write(self, path: str, chunks: Iterable[bytes | memoryview]) -> None:
        self.asked.set()
        assert self.let.wait(PROMPT_S)
        super().write(path, chunks)


class FullStore(LocalStore):
    def write(self, path: str, chunks: Iterable[bytes | memoryview]) -> None:
        raise OSError(28, "No space left on device")


class FaultyStore(LocalStore):
    def write(self, path: str, chunks: Iterable[bytes | memoryview]) -> None:
        raise TypeError("a fault of the program")


class AloneGang:
    """A gang whose ranks are in this process."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def barrier(self) -> None:
        return


@pytest.fixture
def shared() -> Store:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return PrefixStore("a1", server)


@pytest.fixture
def told(tmp_path: Path) -> Path:
    return tmp_path / "report.jsonl"


def settings(rank: int, stages: int) -> Settings:
    plan = WorkerPlan(
        model=MODEL, steps=9, micro_batch=1, micro_batches=1, dtype="fp32", recompute="none",
        layers_per_stage=[1], window=[1], learning_rate=0.01, seed=0,
        checkpoint_uri="file:///x", checkpoint_every=1,
    )  # fmt: skip
    two = plan.model_copy(
        update={"model": MODEL.model_copy(update={"layers": 2}), "layers_per_stage": [1, 1]}
    )
    place = {
        "RANK": rank, "WORLD_SIZE": stages, "BACE_STAGE": rank, "BACE_STAGES": stages,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1, "BACE_ALLOCATION_ID": "a1",
    }  # fmt: skip
    window = {"window": [1] * stages}
    chosen = (plan if stages == 1 else two).model_copy(update=window)
    environ = {name: str(value) for name, value in place.items()}
    return read_settings(environ | {"BACE_PLAN": chosen.model_dump_json()})


def writer(store: Store, disk: LocalStore, told: Path, rank: int = 0, stages: int = 1) -> CheckpointWriter:
    gang: Any = AloneGang(store)
    folder = CheckpointFolder(disk, "a1")
    return CheckpointWriter(settings(rank, stages), gang, folder, "digest", Report(str(told)))


def tensors(value: float, *names: str) -> dict[str, dict[str, Tensor]]:
    return {name: {"w": torch.full((4,), value)} for name in names or ("embedding", "layer-0000", "head")}


def reported(told: Path) -> list[int]:
    return [json.loads(line)["step"] for line in told.read_text().splitlines()]


def test_it_is_written_as_it_was_and_told_of_when_it_is_complete(
    shared: Store, tmp_path: Path, told: Path
) -> None:
    disk = HeldStore(tmp_path)
    checkpoints = writer(shared, disk, told)
    trained = tensors(1.0)

    checkpoints.save(2, trained)
    for file in trained.values():
        file["w"].add_(1.0)  # training goes on
    checkpoints.check()
    assert disk.asked.wait(PROMPT_S)
    assert reported(told) == []
    disk.let.set()
    checkpoints.finish()

    assert reported(told) == [2]
    assert CheckpointFolder(disk, "reader").read(2, ["head"]).files["head"]["w"].tolist() == [1.0] * 4
    assert checkpoints.waits == 0


def test_the_next_one_waits_for_it_and_is_counted(shared: Store, tmp_path: Path, told: Path) -> None:
    disk = HeldStore(tmp_path)
    checkpoints = writer(shared, disk, told)
    checkpoints.save(2, tensors(1.0))
    assert disk.asked.wait(PROMPT_S)

    training = threading.Thread(target=checkpoints.save, args=(4, tensors(2.0)))
    training.start()
    training.join(0.05)
    assert training.is_alive()
    disk.let.set()
    training.join(PROMPT_S)
    checkpoints.finish()

    assert checkpoints.waits == 1
    assert reported(told) == [2, 4]
    folder = CheckpointFolder(disk, "reader")
    assert [folder.read(step, ["head"]).files["head"]["w"][0] for step in (2, 4)] == [1.0, 2.0]


def test_it_is_complete_when_all_stages_have_written(shared: Store, tmp_path: Path, told: Path) -> None:
    disk = LocalStore(tmp_path)
    first = writer(shared, disk, told, 0, 2)
    last = writer(shared, disk, told, 1, 2)

    for step in (2, 4):  # the leader is ahead of the other
        first.save(step, tensors(float(step), "embedding", "layer-0000"))
    assert CheckpointFolder(disk, "reader").steps() == []
    assert reported(told) == []
    for step in (2, 4):
        last.save(step, tensors(float(step), "layer-0001", "head"))
    last.finish()
    first.finish()

    assert reported(told) == [2, 4]
    assert CheckpointFolder(disk, "reader").steps() == [2, 4]


@pytest.mark.parametrize("surfaces", ["check", "finish"])
def test_a_failure_to_write_is_an_end(shared: Store, tmp_path: Path, told: Path, surfaces: str) -> None:
    checkpoints = writer(shared, FullStore(tmp_path), told)
    checkpoints.save(2, tensors(1.0))
    with pytest.raises(WorkerEndError, match="No space left on device") as caught:
        checkpoints.save(4, tensors(1.0))  # waits for the one before, and finds it failed
    assert caught.value.cause is Cause.CHECKPOINT_UNWRITABLE

    with pytest.raises(WorkerEndError, match=r"checkpoint\.uri file://.*step-00000002"):
        getattr(checkpoints, surfaces)()
    assert reported(told) == []


def test_no_fault_of_the_thread_that_writes_is_lost(shared: Store, tmp_path: Path, told: Path) -> None:
    checkpoints = writer(shared, FaultyStore(tmp_path), told)
    checkpoints.save(2, tensors(1.0))

    with pytest.raises(TypeError, match="a fault of the program"):
        checkpoints.finish()


def test_a_replica_writes_nothing(tmp_path: Path, told: Path) -> None:
    """Replicas are equal."""
    gang: Any = AloneGang(HashStore())
    environ = {
        "RANK": "1", "WORLD_SIZE": "2", "BACE_STAGE": "0", "BACE_STAGES": "1", "BACE_DATA_RANK": "1",
        "BACE_DATA_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1",
        "BACE_PLAN": settings(0, 1).plan.model_dump_json(),
    }  # fmt: skip
    disk = LocalStore(tmp_path / "checkpoints")
    replica = CheckpointWriter(
        read_settings(environ), gang, CheckpointFolder(disk, "a1"), "digest", Report(str(told))
    )

    replica.save(2, tensors(1.0))
    replica.finish()

    assert not disk.root.exists()
