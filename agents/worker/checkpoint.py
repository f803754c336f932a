"""Checkpoints that do not know how many stages wrote them: one file a layer, complete once they have a manifest.

    <checkpoint uri>/step-00000040/manifest.json
                                   embedding.safetensors  layer-0000.safetensors …  head.safetensors

All stages write into `step-00000040.<allocation>.tmp`. When every file is on disk, rank 0 adds the manifest and
gives the folder its name: one rename, so that a checkpoint is there whole or not at all. Folders without that
name or without a manifest that fits are torn, and ignored.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from agents.protocol import WorkerModel
from agents.worker.causes import Cause, WorkerEndError
from agents.worker.optimizer import layer_tensors, restore_layer
from agents.worker.stage import StageModule, layer_name
from agents.worker.tensorfile import DamagedTensorFileError, read_tensors, write_tensors

FORMAT = 1
KEPT = 2
MANIFEST = "manifest.json"
_COMPLETE = re.compile(r"step-([0-9]{8,})")


class Manifest(BaseModel):
    """What makes a checkpoint complete: which model, after which step, and the size of every file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: int
    step: int
    seed: int
    corpus: str
    model: WorkerModel
    files: dict[str, int]


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """The checkpoints of a job, as one allocation of it writes them."""

    root: Path
    allocation_id: str

    def pending(self, step: int) -> Path:
        """Where the checkpoint of `step` is put together. A stopped generation that still writes has another."""
        return self.root / f"{_name(step)}.{self.allocation_id}.tmp"

    def write_stage(self, step: int, module: StageModule, optimizer: torch.optim.Optimizer) -> None:
        """Write the layers of one stage; they count once `publish` has been called after all stages.

        Raises WorkerEndError `checkpoint-unwritable`.
        """
        self.write(step, {name: layer_tensors(optimizer, layer) for name, layer in module.named_layers()})

    def write(self, step: int, files: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Write named tensors, a file for each name; they count once `publish` has been called.

        Raises WorkerEndError `checkpoint-unwritable`.
        """
        folder = self.pending(step)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, tensors in files.items():
                write_tensors(folder / f"{name}.safetensors", tensors, {"step": str(step)})
            _sync_folder(folder)
        except OSError as error:
            raise _unwritable(folder, error) from error

    def publish(self, step: int, model: WorkerModel, seed: int, corpus: str) -> str:
        """Make the checkpoint of `step` complete (rank 0, after all stages wrote theirs); its URI."""
        folder, final = self.pending(step), self.root / _name(step)
        try:
            files = {
                path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.name != MANIFEST
            }
            manifest = Manifest(format=FORMAT, step=step, seed=seed, corpus=corpus, model=model, files=files)
            with (folder / MANIFEST).open("w") as file:
                file.write(manifest.model_dump_json(indent=1))
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(folder)
            if self.manifest(step) is None:
                shutil.rmtree(final, ignore_errors=True)  # torn
                folder.rename(final)
            else:  # an earlier generation came as far: training is deterministic, so this is the same
                shutil.rmtree(folder)
            _sync_folder(self.root)
        except OSError as error:
            raise _unwritable(folder, error) from error
        return final.as_uri()

    def tidy(self) -> None:
        """Remove all but the last complete checkpoints, and what was never completed before them (rank 0)."""
        complete = self.steps()
        if not complete:
            return
        for path in list(self.root.glob("step-*")):
            step = int(path.name.removeprefix("step-").partition(".")[0])
            if step not in complete[-KEPT:] and step <= complete[-1]:
                shutil.rmtree(path, ignore_errors=True)

    def steps(self) -> list[int]:
        """The steps of the complete checkpoints, ascending."""
        if not self.root.is_dir():
            return []
        found = (_COMPLETE.fullmatch(path.name) for path in self.root.iterdir())
        steps = (int(match[1]) for match in found if match)
        return sorted(step for step in steps if self.manifest(step) is not None)

    def manifest(self, step: int) -> Manifest | None:
        """The manifest of a complete checkpoint: all its files are there in their sizes. None otherwise."""
        folder = self.root / _name(step)
        try:
            manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
            sizes = {name: (folder / name).stat().st_size for name in manifest.files}
        except (OSError, ValidationError):
            return None
        whole = manifest.format == FORMAT and manifest.step == step and sizes == manifest.files
        return manifest if whole and set(_files_of(manifest.model)) <= set(sizes) else None

    def choose(self, wanted: int, model: WorkerModel) -> int:
        """The step to go on from: `wanted`, or the last complete one if that checkpoint is no longer there.

        A newer one than the server knows of is there when the agent died before it could tell of it.

        Raises WorkerEndError `checkpoint-unusable` when there is none, or it is of another model.
        """
        if wanted == 0:
            return 0
        complete = self.steps()
        if not complete:
            raise _unusable(self.root, f"resume_step is {wanted}, but there is no complete checkpoint")
        step = wanted if wanted in complete else complete[-1]
        manifest = self.manifest(step)
        if manifest is None or manifest.model != model:
            raise _unusable(self.root / _name(step), "it holds another model than the plan's")
        return step

    def read_stage(self, step: int, module: StageModule, optimizer: torch.optim.Optimizer) -> None:
        """Bring the layers of one stage, of whatever cut, to what they were after `step`.

        Raises WorkerEndError `checkpoint-unusable`.
        """
        for name, layer in module.named_layers():
            self.restore(step, name, partial(restore_layer, optimizer, layer, step=step))

    def restore(self, step: int, name: str, put_back: Callable[[Mapping[str, Tensor]], None]) -> None:
        """Give the tensors that were written under `name` to `put_back`, whose KeyError or ValueError says that they
        do not fit.

        Raises WorkerEndError `checkpoint-unusable`.
        """
        path = self.root / _name(step) / f"{name}.safetensors"
        try:
            tensors, _ = read_tensors(path)
            put_back(tensors)
        except (OSError, DamagedTensorFileError, KeyError, ValueError) as error:
            raise _unusable(path, str(error)) from error


def _files_of(model: WorkerModel) -> Iterable[str]:
    names = ("embedding", *(layer_name(layer) for layer in range(model.layers)), "head")
    return (f"{name}.safetensors" for name in names)


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _sync_folder(folder: Path) -> None:
    """Make names durable, not only what they name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(path: Path, error: OSError) -> WorkerEndError:
    return WorkerEndError(
        Cause.CHECKPOINT_UNWRITABLE,
        f"checkpoint.uri {path}: {error.strerror or error}; every region of the job must be able to write there",
    )


def _unusable(path: Path, why: str) -> WorkerEndError:
    return WorkerEndError(Cause.CHECKPOINT_UNUSABLE, f"checkpoint {path}: {why}")
