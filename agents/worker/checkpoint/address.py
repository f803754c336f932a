"""From the address of a plan to the store that it names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from agents.worker.causes import Cause, WorkerEndError
from agents.worker.checkpoint.local_store import LocalStore
from agents.worker.checkpoint.store import Store


def open_store(uri: str) -> Store:
    """The store at an address, without looking whether anything is there.

    Raises WorkerEndError: `invalid-plan` for what is no such address, `checkpoint-unwritable` where this node lacks
    the package that opens it.
    """
    parts = urlsplit(uri)
    if not parts.scheme or "::" in uri or ".." in parts.path.split("/"):
        raise WorkerEndError(
            Cause.INVALID_PLAN,
            f"checkpoint_uri is {uri!r}: it must be one address such as file:///absolute/folder or "
            "s3://bucket/folder, without ..",
        )
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise WorkerEndError(
                Cause.INVALID_PLAN, f"checkpoint_uri is {uri!r}: a folder is file:///absolute/folder"
            )
        return LocalStore(Path(unquote(parts.path)))
    from agents.worker.checkpoint.remote_store import open_remote  # fsspec is slow to import

    return open_remote(uri)
