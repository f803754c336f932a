"""A checkpoint is there whole or not at all, says what it holds, and does not depend on the cut."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.protocol import WorkerModel, WorkerPlan
from agents.worker.causes import Cause, WorkerEndError
from agents.worker.checkpoint import CheckpointFolder
from agents.worker.model import cross_entropy
from agents.worker.optimizer import layer_tensors, make_optimizer
from agents.worker.stage import StageModule
from agents.worker.tensorfile import DamagedTensorFileError, read_tensors, write_tensors

MODEL = WorkerModel(layers=3, hidden=16, heads=2, kv_heads=2, head_dim=8, ffn=16, vocab=256, seq_len=8)
CPU = torch.device("cpu")


def stage(cut: list[int], index: int) -> tuple[StageModule, torch.optim.AdamW]:
    plan = WorkerPlan(
        model=MODEL, steps=1, micro_batch=1, micro_batches=1, dtype="fp32", recompute="none",
        layers_per_stage=cut, window=[1] * len(cut), learning_rate=0.01, seed=0,
        checkpoint_uri="file:///x", checkpoint_every=1,
    )  # fmt: skip
    module = StageModule(plan, index, CPU)
    return module, make_optimizer(module, plan.learning_rate)


def trained() -> tuple[StageModule, torch.optim.AdamW]:
    module, optimizer = stage([3], 0)
    for _ in range(2):
        optimizer.zero_grad()
        tokens = torch.arange(9).reshape(1, 9)
        cross_entropy(module(tokens[:, :-1]), tokens[:, 1:]).backward()
        optimizer.step()
    return module, optimizer


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "checkpoints", "a1")


def write(folder: CheckpointFolder, step: int, whole: tuple[StageModule, torch.optim.AdamW]) -> str:
    folder.write_stage(step, *whole)
    return folder.publish(step, MODEL, seed=0, corpus="digest")


def test_what_one_stage_wrote_two_stages_read(folder: CheckpointFolder) -> None:
    module, optimizer = trained()
    uri = write(folder, 2, (module, optimizer))
    written = {name: layer_tensors(optimizer, layer) for name, layer in module.named_layers()}

    read: dict[str, dict[str, torch.Tensor]] = {}
    for index in range(2):
        part, state = stage([1, 2], index)
        folder.read_stage(2, part, state)
        read |= {name: layer_tensors(state, layer) for name, layer in part.named_layers()}
        assert {float(entry["step"]) for entry in state.state.values()} == {2.0}

    assert uri == (folder.root / "step-00000002").as_uri()
    assert read.keys() == written.keys()
    for name, tensors in written.items():
        assert tensors.keys() == read[name].keys()
        assert all(torch.equal(tensor, read[name][key]) for key, tensor in tensors.items())


def test_it_is_complete_only_when_published(folder: CheckpointFolder) -> None:
    whole = trained()
    folder.write_stage(2, *whole)
    assert folder.steps() == []

    folder.publish(2, MODEL, seed=0, corpus="digest")
    assert folder.steps() == [2]


@pytest.mark.parametrize(
    "damage", ["no manifest", "half a manifest", "a short file", "no head", "another step"]
)
def test_a_torn_one_is_ignored_and_written_again(folder: CheckpointFolder, damage: str) -> None:
    whole = trained()
    write(folder, 2, whole)
    write(folder, 4, whole)
    torn = folder.root / "step-00000004"
    manifest = torn / "manifest.json"
    if damage == "no manifest":
        manifest.unlink()
    elif damage == "half a manifest":
        manifest.write_text(manifest.read_text()[:80])
    elif damage == "a short file":
        (torn / "layer-0001.safetensors").write_bytes(b"short")
    elif damage == "no head":
        (torn / "head.safetensors").unlink()
    else:
        manifest.write_text(manifest.read_text().replace('"step": 4', '"step": 5'))

    assert folder.steps() == [2]
    assert folder.choose(4, MODEL) == 2

    write(folder, 4, whole)
    assert folder.steps() == [2, 4]


def test_the_last_two_are_kept_and_what_never_became_one_is_removed(folder: CheckpointFolder) -> None:
    whole = trained()
    CheckpointFolder(folder.root, "older").write_stage(3, *whole)
    later = CheckpointFolder(folder.root, "other").pending(9)
    CheckpointFolder(folder.root, "other").write_stage(9, *whole)
    for step in (2, 4, 6):
        write(folder, step, whole)
        folder.tidy()

    assert folder.steps() == [4, 6]
    assert {path.name for path in folder.root.iterdir()} == {"step-00000004", "step-00000006", later.name}


def test_an_earlier_generations_checkpoint_of_the_same_step_stays(folder: CheckpointFolder) -> None:
    whole = trained()
    first = write(folder, 2, whole)

    assert write(CheckpointFolder(folder.root, "a2"), 2, whole) == first
    assert [path.name for path in folder.root.iterdir()] == ["step-00000002"]


def test_the_wanted_step_is_chosen_where_it_is_there(folder: CheckpointFolder) -> None:
    assert folder.choose(0, MODEL) == 0
    whole = trained()
    for step in (2, 4):
        write(folder, step, whole)

    assert folder.choose(2, MODEL) == 2
    assert folder.choose(3, MODEL) == 4, "the wanted one is gone: the newest is next best"


def test_none_or_another_models_is_an_error(folder: CheckpointFolder) -> None:
    with pytest.raises(WorkerEndError, match="no complete checkpoint") as caught:
        folder.choose(2, MODEL)
    assert caught.value.cause is Cause.CHECKPOINT_UNUSABLE

    write(folder, 2, trained())
    with pytest.raises(WorkerEndError, match="another model"):
        folder.choose(2, MODEL.model_copy(update={"ffn": 32}))


def test_a_damaged_layer_is_an_error_that_names_the_file(folder: CheckpointFolder) -> None:
    write(folder, 2, trained())
    path = folder.root / "step-00000002" / "layer-0001.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)

    with pytest.raises(WorkerEndError, match=r"layer-0001\.safetensors.*checksum"):
        folder.read_stage(2, *stage([3], 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_tensors_come_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"w": torch.randn(3, 5).to(dtype), "scalar": torch.tensor(2.5, dtype=dtype)}
    path = tmp_path / "x.safetensors"

    size = write_tensors(path, tensors, {"step": "7"})
    read, metadata = read_tensors(path)

    assert size == path.stat().st_size
    assert metadata["step"] == "7"
    assert all(
        read[name].dtype == dtype and torch.equal(read[name], value) for name, value in tensors.items()
    )


def test_the_file_has_the_open_layout(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"w": torch.tensor([1.0, 2.0])}, {})
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header: dict[str, Any] = json.loads(content[8 : 8 + length])

    assert header["w"] == {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    assert content[8 + length :] == struct.pack("<2f", 1.0, 2.0)


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 40, b"\x02" + bytes(7) + b"{}", b"\x02" + bytes(7) + b"[]"]
)
def test_what_is_no_such_file_is_damaged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)

    with pytest.raises(DamagedTensorFileError):
        read_tensors(path)
