"""The checkpoints of a job: written in parts, published whole, verified as they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError
from torch import Tensor

from agents.protocol import WorkerPlan
from agents.worker.causes import Cause, WorkerEndError
from agents.worker.checkpoint.manifest import (
    FileEntry,
    Manifest,
    begun_step,
    complete_step,
    file_name,
    folder_name,
)
from agents.worker.checkpoint.store import MANIFEST, Store
from agents.worker.tensorfile import DamagedTensorFileError, decoded, encoded

NamedTensors = Mapping[str, Tensor]


class DamagedCheckpointError(Exception):
    """A file of a checkpoint is not what was written. The text names the file and tells what is wrong."""


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """What a rank has read of a checkpoint; it is what was written."""

    step: int
    uri: str
    files: Mapping[str, NamedTensors]

    def restore(self, name: str, put_back: Callable[[NamedTensors], None]) -> None:
        """Give the tensors that were written under `name` to `put_back`, whose KeyError or ValueError says that they
        do not fit.

        Raises WorkerEndError `checkpoint-unusable`.
        """
        try:
            put_back(self.files[name])
        except KeyError as error:
            why = f"it has no {error}, which the plan's optimizer or model needs: go on with those that wrote it"
            raise unusable(f"{self.uri}/{file_name(name)}", why) from error
        except ValueError as error:
            raise unusable(f"{self.uri}/{file_name(name)}", str(error)) from error


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """The checkpoints of a job, as one allocation of it writes them."""

    store: Store
    allocation_id: str
    damaged: dict[int, str] = field(default_factory=dict)
    """Steps whose checkpoint turned out not to be what was written, and why."""

    def write(self, step: int, files: Mapping[str, NamedTensors]) -> dict[str, FileEntry]:
        """Write named tensors, a file for each name; they count once `publish` has been called with what this gives.

        Raises WorkerEndError `checkpoint-unwritable`.
        """
        draft = self.store.draft(folder_name(step), self.allocation_id)
        written = {}
        for name, tensors in files.items():
            digested = _Digested(encoded(tensors, {"step": str(step)}))
            path = f"{draft}/{file_name(name)}"
            try:
                self.store.write(path, digested)
            except OSError as error:
                raise self._unwritable(path, error) from error
            written[file_name(name)] = digested.entry()
        return written

    def publish(self, plan: WorkerPlan, step: int, corpus: str, files: Mapping[str, FileEntry]) -> str:
        """Make the checkpoint of `step` complete (rank 0, after all stages wrote their `files`); its URI.

        Where an earlier generation came as far, its checkpoint stays, unless it is damaged: training is
        deterministic, so it is the same. That of another job in the same place does not stay.

        Raises WorkerEndError `checkpoint-unwritable`.
        """
        folder = folder_name(step)
        within = self.store.files_folder(self.allocation_id)
        manifest = Manifest.of(plan, step, corpus, within, files)
        there = self.manifest(step)
        stays = (
            there is not None
            and there.misfit(plan) is None
            and step not in self.damaged
            and (within is None or there.folder != within)  # else its files have just been written anew
        )
        try:
            content = manifest.model_dump_json(indent=1, exclude_none=True).encode()
            self.store.publish(folder, self.allocation_id, content, replace=not stays)
        except OSError as error:
            raise self._unwritable(folder, error) from error
        self.damaged.pop(step, None)
        return self.store.uri(folder)

    def tidy(self, step: int, keep: int) -> None:
        """Of the checkpoints up to that of `step`, which is complete, leave the last `keep` that are (rank 0).

        What was never completed before it goes, too. What an earlier generation wrote of later steps stays.

        Raises WorkerEndError `checkpoint-unwritable`.
        """
        try:
            folders = self.store.folders()
            named = {
                done for folder in folders if (done := complete_step(folder)) is not None and done <= step
            }
            # One that cannot be looked at may be whole: that is a fault here, not a reason to remove it.
            whole = [done for done in sorted(named - self.damaged.keys()) if self._manifest(done) is not None]
            for folder in folders:
                begun = begun_step(folder)
                if begun is not None and begun <= step and begun not in whole[-keep:]:
                    self.store.remove(folder)
        except OSError as error:
            raise self._unwritable("", error) from error

    def steps(self) -> list[int]:
        """The steps of the complete checkpoints, ascending. Raises WorkerEndError `checkpoint-unusable`."""
        try:
            named = [step for folder in self.store.folders() if (step := complete_step(folder)) is not None]
        except OSError as error:
            raise unusable(self.store.uri(""), _told(error)) from error
        return sorted(step for step in named if self.manifest(step) is not None)

    def manifest(self, step: int) -> Manifest | None:
        """The manifest of a complete checkpoint: all its files are there in their sizes. None otherwise."""
        try:
            return self._manifest(step)
        except OSError:
            return None

    def choose(self, plan: WorkerPlan) -> int:
        """The step to go on from: the plan's, or the last complete one if that checkpoint is no longer there whole.

        A newer one than the server knows of is there when the agent died before it could tell of it.

        Raises WorkerEndError `checkpoint-unusable` when there is none, or it does not fit the plan.
        """
        usable = [step for step in self.steps() if step not in self.damaged]
        if not usable:
            wrong = "; ".join(self.damaged[step] for step in sorted(self.damaged, reverse=True))
            why = f"resume_step is {plan.resume_step}, but there is no complete checkpoint"
            raise unusable(self.store.uri(""), f"{why}: {wrong}" if wrong else why)
        step = plan.resume_step if plan.resume_step in usable else usable[-1]
        manifest = self.manifest(step)
        misfit = "it is no longer complete" if manifest is None else manifest.misfit(plan)
        if misfit:
            raise unusable(self.store.uri(folder_name(step)), misfit)
        return step

    def read(self, step: int, names: Iterable[str]) -> CheckpointPart:
        """Read the tensors that were written under `names`, each verified by its digest.

        Raises DamagedCheckpointError.
        """
        manifest = self.manifest(step)
        if manifest is None:
            raise DamagedCheckpointError(f"{folder_name(step)}: it is not complete")
        folder = _files_folder(manifest, step)
        files = {name: self._verified(manifest, folder, file_name(name)) for name in names}
        return CheckpointPart(step, self.store.uri(folder), files)

    def _manifest(self, step: int) -> Manifest | None:
        """As `manifest`. Raises OSError where it cannot be told."""
        try:
            manifest = Manifest.model_validate_json(self.store.read(f"{folder_name(step)}/{MANIFEST}"))
            sizes = self.store.sizes(_files_folder(manifest, step))
        except (FileNotFoundError, NotADirectoryError, ValidationError):
            return None
        return manifest if manifest.names_all(sizes, step) else None

    def _verified(self, manifest: Manifest, folder: str, name: str) -> NamedTensors:
        entry = manifest.files.get(name)
        if entry is None:
            raise DamagedCheckpointError(f"{folder}/{name}: the manifest does not name it")
        try:
            content = self.store.read(f"{folder}/{name}")
            if entry.sha256 not in (None, hashlib.sha256(content).hexdigest()):
                raise DamagedCheckpointError(
                    f"{folder}/{name}: its bytes do not have the SHA-256 of the manifest"
                )
            tensors, _ = decoded(content)
        except (OSError, DamagedTensorFileError) as error:
            why = _told(error) if isinstance(error, OSError) else str(error)
            raise DamagedCheckpointError(f"{folder}/{name}: {why}") from error
        return tensors

    def _unwritable(self, path: str, error: OSError) -> WorkerEndError:
        return WorkerEndError(
            Cause.CHECKPOINT_UNWRITABLE,
            f"checkpoint.uri {self.store.uri(path)}: {_told(error)}; every region of the job must be able to write "
            "there",
        )


class _Digested:
    """Passes the pieces of a file on, and knows its size and digest at the end."""

    def __init__(self, chunks: Iterable[bytes | memoryview]) -> None:
        self._chunks, self._digest, self._bytes = chunks, hashlib.sha256(), 0

    def __iter__(self) -> Iterator[bytes | memoryview]:
        for chunk in self._chunks:
            self._digest.update(chunk)
            self._bytes += len(chunk)
            yield chunk

    def entry(self) -> FileEntry:
        return FileEntry(bytes=self._bytes, sha256=self._digest.hexdigest())


def unusable(uri: str, why: str) -> WorkerEndError:
    """The end of a worker that cannot go on from its checkpoint."""
    return WorkerEndError(Cause.CHECKPOINT_UNUSABLE, f"checkpoint {uri}: {why}")


def _files_folder(manifest: Manifest, step: int) -> str:
    return f"{folder_name(step)}/{manifest.folder}" if manifest.folder else folder_name(step)


def _told(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
