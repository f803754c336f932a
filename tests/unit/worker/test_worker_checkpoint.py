"""A checkpoint is there whole or not at all, says what it holds, and does not depend on the cut: in a folder, and at an
address where nothing can be renamed.
"""

from __future__ import annotations

import errno
import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from agents.protocol import WorkerModel, WorkerPlan
from agents.worker.causes import Cause, WorkerEndError
from agents.worker.checkpoint.address import open_store
from agents.worker.checkpoint.folder import CheckpointFolder, DamagedCheckpointError
from agents.worker.checkpoint.local_store import LocalStore
from agents.worker.checkpoint.snapshot import Snapshot
from agents.worker.checkpoint.store import MANIFEST, Store
from agents.worker.model import cross_entropy
from agents.worker.tensorfile import DamagedTensorFileError, decoded, encoded
from agents.worker.trained_stage import TrainedStage

MODEL = WorkerModel(layers=3, hidden=16, heads=2, kv_heads=2, head_dim=8, ffn=16, vocab=256, seq_len=8)
CPU = torch.device("cpu")


def plan(*cut: int, **changes: Any) -> WorkerPlan:
    return WorkerPlan(
        **{
            "model": MODEL, "steps": 1, "micro_batch": 1, "micro_batches": 1, "dtype": "fp32", "recompute": "none",
            "layers_per_stage": cut, "window": [1] * len(cut), "learning_rate": 0.01, "seed": 0,
            "checkpoint_uri": "file:///x", "checkpoint_every": 1, **changes,
        }
    )  # fmt: skip


WHOLE = plan(3)


def trained(**changes: Any) -> TrainedStage:
    """One stage that has all layers, after two steps."""
    stage = TrainedStage.of(plan(3, **changes), 0, CPU)
    for _ in range(2):
        stage.optimizer.zero_grad()
        tokens = torch.arange(9).reshape(1, 9)
        cross_entropy(stage.module(tokens[:, :-1]), tokens[:, 1:]).backward()
        stage.optimizer.step()
    return stage


@pytest.fixture(params=["file", "memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A folder, an object store, and a folder that is taken for one."""
    path = tmp_path / "checkpoints"
    yield open_store(path.as_uri() if request.param == "file" else f"{request.param}://{path}")
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def folder(store: Store) -> CheckpointFolder:
    return CheckpointFolder(store, "a1")


def write(folder: CheckpointFolder, step: int, stage: TrainedStage, written_by: WorkerPlan = WHOLE) -> str:
    return folder.publish(written_by, step, "digest", folder.write(step, stage.checkpoint_tensors()))


def path_of(folder: CheckpointFolder, step: int, file: str) -> str:
    """Of a file of a complete checkpoint."""
    manifest = folder.manifest(step)
    assert manifest is not None
    within = f"{manifest.folder}/" if manifest.folder else ""
    return f"step-{step:08d}/{within}{file}"


def damage(folder: CheckpointFolder, step: int, file: str) -> None:
    """Change one bit, and not the size."""
    path = path_of(folder, step, file)
    content = bytearray(folder.store.read(path))
    content[-1] ^= 1
    folder.store.write(path, [bytes(content)])


def test_what_one_stage_wrote_two_stages_read(folder: CheckpointFolder) -> None:
    whole = trained()
    uri = write(folder, 2, whole)
    written = whole.checkpoint_tensors()

    found: dict[str, dict[str, torch.Tensor]] = {}
    for index in range(2):
        stage = TrainedStage.of(plan(1, 2), index, CPU)
        stage.restore(folder.read(2, stage.names_in(())))
        found |= stage.checkpoint_tensors()
        assert {float(entry["step"]) for entry in stage.optimizer.state.values()} == {2.0}

    assert uri == folder.store.uri("step-00000002")
    assert found.keys() == written.keys()
    for name, tensors in written.items():
        assert tensors.keys() == found[name].keys()
        assert all(torch.equal(tensor, found[name][key]) for key, tensor in tensors.items())


def test_it_is_complete_only_when_published(folder: CheckpointFolder) -> None:
    files = folder.write(2, trained().checkpoint_tensors())
    assert folder.steps() == []

    folder.publish(WHOLE, 2, "digest", files)
    assert folder.steps() == [2]


def test_a_stage_that_is_missing_leaves_it_incomplete(folder: CheckpointFolder) -> None:
    tensors = trained().checkpoint_tensors()
    del tensors["layer-0001"]

    folder.publish(WHOLE, 2, "digest", folder.write(2, tensors))

    assert folder.steps() == []


@pytest.mark.parametrize(
    "torn", ["no manifest", "half a manifest", "a short file", "no head", "another step"]
)
def test_a_torn_one_is_ignored_and_written_again(folder: CheckpointFolder, torn: str) -> None:
    whole, store = trained(), folder.store
    write(folder, 2, whole)
    write(folder, 4, whole)
    manifest = f"step-00000004/{MANIFEST}"
    content = store.read(manifest)
    if torn == "no manifest":
        store.remove("step-00000004")
        folder.write(4, whole.checkpoint_tensors())
    elif torn == "half a manifest":
        store.write(manifest, [content[:80]])
    elif torn == "a short file":
        store.write(path_of(folder, 4, "layer-0001.safetensors"), [b"short"])
    elif torn == "no head":
        store.write(manifest, [content.replace(b"head.safetensors", b"toes.safetensors")])
    else:
        store.write(manifest, [content.replace(b'"step": 4', b'"step": 5')])

    assert folder.steps() == [2]
    assert folder.choose(plan(3, resume_step=4)) == 2

    write(folder, 4, whole)
    assert folder.steps() == [2, 4]


@pytest.mark.parametrize("elsewhere", ["../step-00000002", "..", "/etc"])
def test_a_manifest_leads_nowhere_else(tmp_path: Path, elsewhere: str) -> None:
    """A folder of other files, in their sizes, would do."""
    folder = CheckpointFolder(LocalStore(tmp_path), "a1")
    write(folder, 2, trained())
    manifest = json.loads(folder.store.read(f"step-00000002/{MANIFEST}"))
    assert folder.manifest(2) is not None

    manifest |= {"step": 4, "folder": elsewhere}
    folder.store.write(f"step-00000004/{MANIFEST}", [json.dumps(manifest).encode()])
    assert folder.steps() == [2]

    manifest |= {"step": 4, "files": manifest["files"] | {f"{elsewhere}/{MANIFEST}": {"bytes": 1}}}
    del manifest["folder"]
    folder.store.write(f"step-00000004/{MANIFEST}", [json.dumps(manifest).encode()])
    assert folder.steps() == [2]


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_last_ones_are_kept_and_what_never_became_one_is_removed(
    folder: CheckpointFolder, keep: int
) -> None:
    whole = trained()
    replace(folder, allocation_id="older").write(3, whole.checkpoint_tensors())
    replace(folder, allocation_id="other").write(9, whole.checkpoint_tensors())
    for step in (2, 4, 6, 8):
        write(folder, step, whole)
        folder.tidy(step, keep)

    assert folder.steps() == [2, 4, 6, 8][-keep:]
    begun = {int(name.removeprefix("step-").partition(".")[0]) for name in folder.store.folders()}
    assert begun == {*[2, 4, 6, 8][-keep:], 9}


def test_only_what_is_whole_counts_among_those_that_are_kept(folder: CheckpointFolder) -> None:
    """A generation that had to go back, and is stopped before it comes as far as the damaged one."""
    whole = trained()
    for step in (2, 4, 6):
        write(folder, step, whole)
    folder.damaged[4] = folder.damaged[6] = "bad"

    write(folder, 5, whole)
    folder.tidy(5, 2)

    assert folder.steps() == [2, 5, 6]


class Unreadable(LocalStore):
    """Some of its files cannot be read at the moment."""

    def read(self, path: str) -> bytes:
        if path == f"step-00000004/{MANIFEST}":
            raise OSError(errno.EIO, "Input/output error")
        return super().read(path)


def test_one_that_cannot_be_looked_at_is_not_removed(tmp_path: Path) -> None:
    folder = CheckpointFolder(LocalStore(tmp_path), "a1")
    for step in (2, 4, 6):
        write(folder, step, trained())

    with pytest.raises(WorkerEndError, match="Input/output error") as caught:
        CheckpointFolder(Unreadable(tmp_path), "a1").tidy(6, 2)

    assert caught.value.cause is Cause.CHECKPOINT_UNWRITABLE
    assert folder.steps() == [2, 4, 6]


def test_an_earlier_generations_checkpoint_of_the_same_step_stays(folder: CheckpointFolder) -> None:
    whole = trained()
    first = write(folder, 2, whole)
    content = folder.store.read(f"step-00000002/{MANIFEST}")

    assert write(replace(folder, allocation_id="a2"), 2, whole) == first
    assert folder.store.folders() == ["step-00000002"]
    assert folder.store.read(f"step-00000002/{MANIFEST}") == content


def test_another_jobs_checkpoint_in_the_same_place_is_replaced(folder: CheckpointFolder) -> None:
    whole, other = trained(), trained(seed=7)
    write(folder, 2, whole)

    write(replace(folder, allocation_id="a2"), 2, other, plan(3, seed=7))

    assert folder.choose(plan(3, seed=7, resume_step=2)) == 2
    found = folder.read(2, ["head"]).files["head"]
    assert all(torch.equal(found[name], value) for name, value in other.checkpoint_tensors()["head"].items())


def test_a_damaged_one_is_written_again(folder: CheckpointFolder) -> None:
    whole = trained()
    write(folder, 2, whole)
    damage(folder, 2, "head.safetensors")
    later = CheckpointFolder(folder.store, "a2")
    later.damaged[2] = "head.safetensors is damaged"

    write(later, 2, whole)

    assert later.read(2, ["head"]).files.keys() == {"head"}
    assert later.choose(plan(3, resume_step=2)) == 2


def test_the_wanted_step_is_chosen_where_it_is_there(folder: CheckpointFolder) -> None:
    whole = trained()
    for step in (2, 4):
        write(folder, step, whole)

    assert folder.choose(plan(3, resume_step=2)) == 2
    assert folder.choose(plan(3, resume_step=3)) == 4, "the wanted one is gone: the newest is next best"


def test_the_one_before_is_next_where_one_is_damaged_and_none_is_an_error(folder: CheckpointFolder) -> None:
    whole = trained()
    for step in (2, 4):
        write(folder, step, whole)
    wanted = plan(3, resume_step=4)

    folder.damaged[4] = "step-00000004/layer-0001.safetensors: bad"
    assert folder.choose(wanted) == 2

    folder.damaged[2] = "step-00000002/head.safetensors: bad"
    with pytest.raises(WorkerEndError, match=r"step-00000004/layer-0001.*bad; step-00000002/head") as caught:
        folder.choose(wanted)
    assert caught.value.cause is Cause.CHECKPOINT_UNUSABLE


def test_none_is_an_error(folder: CheckpointFolder) -> None:
    with pytest.raises(WorkerEndError, match="no complete checkpoint") as caught:
        folder.choose(plan(3, resume_step=2))
    assert caught.value.cause is Cause.CHECKPOINT_UNUSABLE


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": MODEL.model_copy(update={"ffn": 32})}, "another model"),
        ({"seed": 7}, "seed 0, and the plan's is 7"),
        ({"optimizer": "muon"}, "optimizer adamw, and the plan's is muon: go on with adamw"),
        ({"weight_rule": "double-buffered"}, "weight_rule flush, and the plan's is double-buffered"),
    ],
)
def test_one_that_would_not_go_on_as_it_was_is_refused(
    folder: CheckpointFolder, changes: dict[str, Any], told: str
) -> None:
    write(folder, 2, trained())

    with pytest.raises(WorkerEndError, match=told) as caught:
        folder.choose(plan(3, resume_step=2, **changes))
    assert caught.value.cause is Cause.CHECKPOINT_UNUSABLE


def test_moments_that_are_missing_are_named(folder: CheckpointFolder) -> None:
    """A manifest of format 1 does not tell the optimizer."""
    write(folder, 2, trained())
    stage = TrainedStage.of(plan(3, optimizer="muon"), 0, CPU)

    with pytest.raises(
        WorkerEndError, match=r"layer-0000\.safetensors: it has no .*momentum_buffer"
    ) as caught:
        stage.restore(folder.read(2, stage.names_in(())))
    assert caught.value.cause is Cause.CHECKPOINT_UNUSABLE


@pytest.mark.parametrize("file", ["layer-0001.safetensors", "head.safetensors"])
def test_a_bit_that_changed_is_found_and_the_file_named(folder: CheckpointFolder, file: str) -> None:
    write(folder, 2, trained())
    damage(folder, 2, file)

    assert folder.steps() == [2], "all sizes are right"
    with pytest.raises(DamagedCheckpointError, match=rf"step-00000002/.*{file}: .*SHA-256"):
        folder.read(2, ["layer-0001", "head"])


def test_a_file_of_another_checkpoint_is_no_substitute(folder: CheckpointFolder) -> None:
    """It is whole by its own checksum, and has the right size."""
    write(folder, 2, trained())
    write(folder, 4, trained(learning_rate=0.5))
    other = folder.store.read(path_of(folder, 4, "head.safetensors"))
    folder.store.write(path_of(folder, 2, "head.safetensors"), [other])

    with pytest.raises(DamagedCheckpointError, match="SHA-256"):
        folder.read(2, ["head"])


def test_checkpoints_of_format_1_are_read(tmp_path: Path) -> None:
    folder = CheckpointFolder(LocalStore(tmp_path), "a1")
    whole = trained()
    write(folder, 2, whole)
    path = tmp_path / "step-00000002" / MANIFEST
    manifest = json.loads(path.read_text())
    sizes = {name: entry["bytes"] for name, entry in manifest["files"].items()}
    kept = {name: manifest[name] for name in ("step", "seed", "corpus", "model")}
    path.write_text(json.dumps({"format": 1, **kept, "files": sizes}))

    assert folder.choose(plan(3, resume_step=2)) == 2
    assert folder.read(2, ["head"]).files["head"].keys() == whole.checkpoint_tensors()["head"].keys()
    damage(folder, 2, "head.safetensors")
    with pytest.raises(DamagedCheckpointError, match=r"head\.safetensors: .*checksum of its header"):
        folder.read(2, ["head"])


def test_a_snapshot_does_not_change_with_what_it_was_taken_of() -> None:
    stage, snapshot = trained(), Snapshot()
    tensors = stage.checkpoint_tensors()
    before = {name: {key: tensor.clone() for key, tensor in file.items()} for name, file in tensors.items()}

    copies = snapshot.take(tensors)
    with torch.no_grad():
        for file in tensors.values():
            for tensor in file.values():
                tensor.add_(1.0)

    assert all(torch.equal(copies[name][key], before[name][key]) for name in before for key in before[name])
    again = snapshot.take(tensors)
    assert all(again[name][key] is copies[name][key] for name in before for key in before[name]), (
        "one more copy"
    )


@pytest.mark.parametrize(
    ("uri", "cause", "told"),
    [
        ("checkpoints", Cause.INVALID_PLAN, "file:///absolute/folder"),
        ("file:relative", Cause.INVALID_PLAN, "file:///absolute/folder"),
        ("file://host/checkpoints", Cause.INVALID_PLAN, "file:///absolute/folder"),
        ("memory://a/../b", Cause.INVALID_PLAN, r"without \.\."),
        ("simplecache::memory://a", Cause.INVALID_PLAN, "one address"),
        ("gopher://x/y", Cause.INVALID_PLAN, "gopher:// is not known"),
        ("gs://bucket/x", Cause.CHECKPOINT_UNWRITABLE, "gcsfs"),
    ],
)
def test_an_address_that_cannot_be_opened_is_refused_with_what_would_be_right(
    uri: str, cause: Cause, told: str
) -> None:
    with pytest.raises(WorkerEndError, match=told) as caught:
        open_store(uri)
    assert caught.value.cause is cause


@pytest.mark.parametrize("path", ["file", "file/checkpoints/of-a-job"])
def test_a_file_in_the_place_of_the_folder_is_refused_before_anything_is_trained(
    tmp_path: Path, path: str
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(WorkerEndError, match=rf"{tmp_path}/file is a file, not a folder") as caught:
        open_store((tmp_path / path).as_uri())
    assert caught.value.cause is Cause.INVALID_PLAN
    assert open_store((tmp_path / "new" / "folder").as_uri()) == LocalStore(tmp_path / "new" / "folder")


def test_a_folder_that_takes_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    folder = CheckpointFolder(LocalStore(tmp_path / "file"), "a1")

    with pytest.raises(WorkerEndError, match=rf"{tmp_path.name}/file/step.*Not a directory") as caught:
        folder.write(2, {"head": {"w": torch.ones(1)}})
    assert caught.value.cause is Cause.CHECKPOINT_UNWRITABLE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_tensors_come_back_bit_for_bit(dtype: torch.dtype) -> None:
    tensors = {"w": torch.randn(3, 5).to(dtype), "scalar": torch.tensor(2.5, dtype=dtype)}

    read, metadata = decoded(b"".join(encoded(tensors, {"step": "7"})))

    assert metadata["step"] == "7"
    assert all(
        read[name].dtype == dtype and torch.equal(read[name], value) for name, value in tensors.items()
    )


def test_the_file_has_the_open_layout() -> None:
    content = b"".join(encoded({"w": torch.tensor([1.0, 2.0])}, {}))
    (length,) = struct.unpack("<Q", content[:8])
    header: dict[str, Any] = json.loads(content[8 : 8 + length])

    assert header["w"] == {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    assert content[8 + length :] == struct.pack("<2f", 1.0, 2.0)


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 40, b"\x02" + bytes(7) + b"{}", b"\x02" + bytes(7) + b"[]"]
)
def test_what_is_no_such_file_is_damaged(content: bytes) -> None:
    with pytest.raises(DamagedTensorFileError):
        decoded(content)
