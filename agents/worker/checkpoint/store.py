"""Where checkpoints are kept: folders of files under one root."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

MANIFEST = "manifest.json"


class Store(Protocol):
    """Files under one root, by paths of names relative to it. Every method may raise OSError."""

    def uri(self, path: str) -> str:
        """The address of a folder or file."""

    def draft(self, folder: str, allocation_id: str) -> str:
        """Where the files of the checkpoint `folder` are written while it is not complete."""

    def files_folder(self, allocation_id: str) -> str | None:
        """Where in the folder of a complete checkpoint its files are; None: beside the manifest."""

    def publish(self, folder: str, allocation_id: str, manifest: bytes, replace: bool) -> None:
        """Make the draft the checkpoint `folder`; it was whole before, and stays, unless `replace`."""

    def write(self, path: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Write a file, with the folders above it. It is durable when this returns."""

    def read(self, path: str) -> bytes:
        """Raises FileNotFoundError where there is none."""

    def sizes(self, folder: str) -> dict[str, int]:
        """The files in a folder; none where there is no such folder."""

    def folders(self) -> list[str]:
        """The names of the folders in the root; none where there is no root yet."""

    def remove(self, folder: str) -> None:
        """Remove a folder and all in it, as far as it is there."""
