"""What a manifest says, and how folders of checkpoints are called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from agents.protocol import WorkerModel, WorkerPlan
from agents.worker.stage import layer_name

_COMPLETE = re.compile(r"step-([0-9]{8,})")
_BEGUN = re.compile(r"step-([0-9]{8,})(\..*)?")

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,254}$")]
"""Of one file or folder: it leads nowhere else, whoever wrote the manifest."""


class FileEntry(BaseModel):
    """A file as it was written."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """None in manifests of format 1; such files have a CRC-32 of their own alone."""


def _entry(value: object) -> object:
    """Format 1 has the size alone."""
    return {"bytes": value} if isinstance(value, int) else value


class Manifest(BaseModel):
    """What makes a checkpoint complete: which model, how it is trained, after which step, and every file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal[1, 2] = 2
    step: int
    seed: int
    corpus: str
    model: WorkerModel
    optimizer: str | None = None
    weight_rule: str | None = None
    folder: Name | None = None
    """Of the files, in that of the manifest; None: they stand beside it."""
    files: dict[Name, Annotated[FileEntry, BeforeValidator(_entry)]]

    @classmethod
    def of(
        cls, plan: WorkerPlan, step: int, corpus: str, folder: str | None, files: Mapping[str, FileEntry]
    ) -> Manifest:
        """Of the checkpoint that a job with `plan` wrote after `step`."""
        return cls(
            step=step,
            seed=plan.seed,
            corpus=corpus,
            model=plan.model,
            optimizer=plan.optimizer,
            weight_rule=plan.weight_rule,
            folder=folder,
            files=dict(sorted(files.items())),
        )

    def names_all(self, sizes: Mapping[str, int], step: int) -> bool:
        """Whether files of these sizes are the whole checkpoint of `step`."""
        fits = all(sizes.get(name) == entry.bytes for name, entry in self.files.items())
        names = ("embedding", *(layer_name(layer) for layer in range(self.model.layers)), "head")
        return self.step == step and fits and {file_name(name) for name in names} <= self.files.keys()

    def misfit(self, plan: WorkerPlan) -> str | None:
        """Why a job with `plan` cannot go on from it as if nothing had been; None if it can."""
        if self.model != plan.model:
            return "it holds another model than the plan's"
        told: tuple[tuple[str, object, object], ...] = (
            ("seed", self.seed, plan.seed),
            ("optimizer", self.optimizer, plan.optimizer),
            ("weight_rule", self.weight_rule, plan.weight_rule),
        )
        for field, written, wanted in told:
            if written is not None and written != wanted:
                return (
                    f"it was written with {field} {written}, and the plan's is {wanted}: go on with {written}, "
                    "or begin anew in another folder"
                )
        return None


def file_name(name: str) -> str:
    """The file of a layer, or of an end of a codec."""
    return f"{name}.safetensors"


def folder_name(step: int) -> str:
    """The folder of a complete checkpoint."""
    return f"step-{step:08d}"


def complete_step(folder: str) -> int | None:
    """The step of a folder that is called as a complete checkpoint; None for all others."""
    match = _COMPLETE.fullmatch(folder)
    return int(match[1]) if match else None


def begun_step(folder: str) -> int | None:
    """The step of a folder that is, or was to become, a checkpoint; None for all others."""
    match = _BEGUN.fullmatch(folder)
    return int(match[1]) if match else None
