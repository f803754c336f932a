"""From the address of a plan to the store that it names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from agents.worker.causes import Cause, WorkerEndError
from agents.worker.checkpoint.local_store import LocalStore
from agents.worker.checkpoint.store import Store


def open_store(uri: str) -> Store:
    """The store at an address, which need not be there yet.

    Raises WorkerEndError: `invalid-plan` for what is no such address, or where a file is in the place of the folder,
    `checkpoint-unwritable` where this node cannot look, or lacks the package that opens it.
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
        return LocalStore(_folder(Path(unquote(parts.path)), uri))
    from agents.worker.checkpoint.remote_store import open_remote  # fsspec is slow to import

    return open_remote(uri)


def _folder(root: Path, uri: str) -> Path:
    """`root`, told now if it can never be made: else a job would train up to its first checkpoint before it fails."""
    try:
        nearest = next(path for path in (root, *root.parents) if path.exists())
        is_folder = nearest.is_dir()
    except OSError as error:
        raise WorkerEndError(Cause.CHECKPOINT_UNWRITABLE, f"checkpoint.uri {uri}: {error}") from error
    if not is_folder:
        raise WorkerEndError(Cause.INVALID_PLAN, f"checkpoint.uri {uri}: {nearest} is a file, not a folder")
    return root
