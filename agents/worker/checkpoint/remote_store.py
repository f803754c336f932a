"""Checkpoints at any address that fsspec opens: object stores above all, where nothing can be renamed at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import fsspec  # type: ignore[import-untyped]
from fsspec.core import url_to_fs  # type: ignore[import-untyped]

from agents.worker.causes import Cause, WorkerEndError
from agents.worker.checkpoint.store import MANIFEST

BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
"""Schemes of stores without folders: to make one would make its bucket, wherever the address has a slip in it."""


class RemoteStore:
    """A checkpoint counts when its manifest, the last that is written, is there."""

    def __init__(self, uri: str) -> None:
        self._uri = uri.rstrip("/")
        self._has_folders = uri.partition("://")[0] not in BUCKETS
        filesystem, root = url_to_fs(self._uri)
        self._files: Any = filesystem
        self._root = str(root).rstrip("/")

    def uri(self, path: str) -> str:
        return f"{self._uri}/{path}"

    def draft(self, folder: str, allocation_id: str) -> str:
        """Where the files stay. A generation that still writes never touches those of another."""
        return f"{folder}/{allocation_id}"

    def files_folder(self, allocation_id: str) -> str | None:
        return allocation_id

    def publish(self, folder: str, allocation_id: str, manifest: bytes, replace: bool) -> None:
        if replace:
            self.write(f"{folder}/{MANIFEST}", [manifest])
        else:
            self.remove(self.draft(folder, allocation_id))

    def write(self, path: str, chunks: Iterable[bytes | memoryview]) -> None:
        file_path = self._at(path)
        with _faults_as_oserror():
            if self._has_folders:
                self._files.makedirs(file_path.rpartition("/")[0], exist_ok=True)
            with self._files.open(file_path, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)

    def read(self, path: str) -> bytes:
        with _faults_as_oserror():
            return bytes(self._files.cat_file(self._at(path)))

    def sizes(self, folder: str) -> dict[str, int]:
        return {name: size for name, kind, size in self._listed(folder) if kind == "file"}

    def folders(self) -> list[str]:
        return [name for name, kind, _ in self._listed("") if kind == "directory"]

    def remove(self, folder: str) -> None:
        self._files.invalidate_cache()
        with suppress(FileNotFoundError), _faults_as_oserror():
            self._files.rm(self._at(folder), recursive=True)

    def _listed(self, folder: str) -> list[tuple[str, str, int]]:
        """(name, kind, size) of what is in a folder now: others write there, too."""
        self._files.invalidate_cache()
        try:
            with _faults_as_oserror():
                entries = self._files.ls(self._at(folder), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [
            (str(entry["name"]).rstrip("/").rpartition("/")[2], str(entry["type"]), int(entry["size"] or 0))
            for entry in entries
        ]

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


@contextmanager
def _faults_as_oserror() -> Iterator[None]:
    """What libraries of object stores raise in kinds of their own (no connection, no credentials), as OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(str(error) or type(error).__name__) from error


def open_remote(uri: str) -> RemoteStore:
    """The store at an address of fsspec.

    Raises WorkerEndError as `open_store`.
    """
    scheme = uri.partition("://")[0]
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        raise WorkerEndError(
            Cause.CHECKPOINT_UNWRITABLE,
            f"checkpoint.uri {uri}: the package that opens {scheme}:// is not installed on this node ({error}); "
            "it must be beside the worker on every node that the job may use",
        ) from error
    except ValueError as error:
        raise WorkerEndError(
            Cause.INVALID_PLAN,
            f"checkpoint_uri is {uri!r}: {scheme}:// is not known; use file://, or an address of fsspec "
            "such as s3:// or gs://",
        ) from error
    return RemoteStore(uri)
