"""BACE_HOME on disk: looked at before anything relies on it, so that a folder of somebody else's is told in words."""

from __future__ import annotations

import tempfile
from pathlib import Path

from scheduler.errors import InvalidValueError


def make_home(folder: Path) -> None:
    """Make the folder where it is not there. Raises InvalidValueError where nothing can be written to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        expected = f"a folder that can be made and written to ({error.strerror})"
        raise InvalidValueError("BACE_HOME", str(folder), expected) from None
