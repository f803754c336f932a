"""Checkpoints that are written while training goes on.

A step's checkpoint is copied to host memory between two steps, and a thread writes the copy. Ranks say in the gang's
store what they have written; when all have, rank 0 publishes. No collective is in the way of training. Each rank
writes one at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from pydantic import TypeAdapter
from torch import Tensor

from agents.worker.checkpoint.folder import CheckpointFolder, NamedTensors
from agents.worker.checkpoint.manifest import FileEntry
from agents.worker.checkpoint.snapshot import Snapshot
from agents.worker.gang import Gang
from agents.worker.progress import Report
from agents.worker.settings import Settings

PATIENCE = timedelta(days=7)
"""Others may take as long as they need to write: of one that is gone, training tells."""
_FILES = TypeAdapter(dict[str, FileEntry])


@dataclass(slots=True)
class _Writing:
    """A checkpoint on its way."""

    step: int
    before: _Writing | None
    thread: threading.Thread | None = None
    written: threading.Event = field(default_factory=threading.Event)
    """This rank's part is done with, well or not; its copy may be overwritten."""


class CheckpointWriter:
    """Writes the checkpoints of one rank. Replicas are equal, so the first writes for all of them."""

    def __init__(
        self, settings: Settings, gang: Gang, folder: CheckpointFolder, corpus: str, report: Report
    ) -> None:
        self._settings, self._gang, self._folder = settings, gang, folder
        self._corpus, self._report = corpus, report
        self._writes = settings.place.data_rank == 0
        # A connection of its own: who waits on one holds up all others on it, and so the vote of every step.
        self._store = gang.store.clone()  # type: ignore[attr-defined]
        self._store.set_timeout(PATIENCE)
        self._snapshot = Snapshot()
        self._last: _Writing | None = None
        self._failure: Exception | None = None
        self.waits = 0
        """Checkpoints that had to wait until the one before was written."""

    def save(self, step: int, files: Mapping[str, NamedTensors]) -> None:
        """Begin the checkpoint of `step`: when this returns `files` are copied.

        Waits until this rank has written its part of the one before. Raises as `check`.
        """
        if not self._writes:
            return
        begin_s = time.perf_counter()
        if self._last is not None and not self._last.written.is_set():
            self.waits += 1
            print(
                f"the checkpoint of step {step} waits until that of step {self._last.step} is written "
                f"({self.waits} so far waited)",
                flush=True,
            )
        self._await_written()
        copies = self._snapshot.take(files)
        writing = _Writing(step, self._last)
        writing.thread = threading.Thread(
            target=self._write, args=(writing, copies), name=f"checkpoint-{step}", daemon=True
        )
        self._last = writing
        writing.thread.start()
        still_s = time.perf_counter() - begin_s
        print(f"training stood still {still_s:.3f} s for the checkpoint of step {step}", flush=True)

    def check(self) -> None:
        """Raises what a checkpoint failed with: WorkerEndError `checkpoint-unwritable`, or a fault of another kind."""
        if self._failure is not None:
            raise self._failure

    def finish(self) -> None:
        """Wait until every checkpoint that was begun is complete. All ranks call it. Raises as `check`."""
        self._await_written()
        self._gang.barrier()  # tells at once of a rank that is gone, which the store does not
        if self._last is not None and self._last.thread is not None:
            self._last.thread.join()
        self.check()

    def _await_written(self) -> None:
        if self._last is not None:
            self._last.written.wait()
        self.check()

    def _write(self, writing: _Writing, copies: Mapping[str, Mapping[str, Tensor]]) -> None:
        """In a thread of its own."""
        step = writing.step
        try:
            begin_s = time.perf_counter()
            files = self._folder.write(step, copies)
            written = sum(entry.bytes for entry in files.values())
            took_s = time.perf_counter() - begin_s
            print(f"wrote {written} bytes of the checkpoint of step {step} in {took_s:.3f} s", flush=True)
            self._store.set(_key(step, self._settings.place.rank), _FILES.dump_json(files))
            writing.written.set()
            if self._settings.place.leads:
                self._publish(writing)
        except Exception as error:  # noqa: BLE001 - whatever it is, training raises it
            self._failure = error
        finally:
            writing.written.set()
            writing.before = None

    def _publish(self, writing: _Writing) -> None:
        """On rank 0: once all parts are written, and after the checkpoint before."""
        if writing.before is not None and writing.before.thread is not None:
            writing.before.thread.join()
        if self._failure is not None:
            return
        place, step = self._settings.place, writing.step
        keys = [_key(step, rank) for rank in range(0, place.world_size, place.data_size)]
        files: dict[str, FileEntry] = {}
        for told in self._store.multi_get(keys):
            files |= _FILES.validate_json(bytes(told))
        uri = self._folder.publish(self._settings.plan, step, self._corpus, files)
        self._report.checkpoint(step, uri)
        self._folder.tidy(step, self._settings.plan.checkpoint_keep)
        for key in keys:
            self._store.delete_key(key)


def _key(step: int, rank: int) -> str:
    return f"checkpoint/{step}/{rank}"
