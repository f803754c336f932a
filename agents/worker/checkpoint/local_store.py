"""Checkpoints in a folder of the machine, or one that machines share: durable, and complete by one rename."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agents.worker.checkpoint.store import MANIFEST


@dataclass(frozen=True)
class LocalStore:
    """The store of `file://`."""

    root: Path

    def uri(self, path: str) -> str:
        return (self.root / path).as_uri()

    def draft(self, folder: str, allocation_id: str) -> str:
        """A stopped generation that still writes has another."""
        return f"{folder}.{allocation_id}.tmp"

    def files_folder(self, allocation_id: str) -> str | None:
        """Beside the manifest: the draft itself becomes the checkpoint."""
        return None

    def publish(self, folder: str, allocation_id: str, manifest: bytes, replace: bool) -> None:
        """By a rename. What is replaced goes aside first: no other process may see half of it."""
        draft, final = self.root / self.draft(folder, allocation_id), self.root / folder
        self.write(f"{draft.name}/{MANIFEST}", [manifest])
        if replace:
            aside = self.root / f"{folder}.{allocation_id}.damaged.tmp"
            if final.exists():
                final.rename(aside)
            draft.rename(final)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            shutil.rmtree(draft)
        _sync_folder(self.root)

    def write(self, path: str, chunks: Iterable[bytes | memoryview]) -> None:
        file_path = self.root / path
        file_path.parent.mkdir(parents=True, exist_ok=True)
        with file_path.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(file_path.parent)

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def sizes(self, folder: str) -> dict[str, int]:
        try:
            with os.scandir(self.root / folder) as entries:
                return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def folders(self) -> list[str]:
        try:
            with os.scandir(self.root) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def remove(self, folder: str) -> None:
        shutil.rmtree(self.root / folder, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    """Make names durable, not only what they name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
