"""Small disks that can be filled: a tmpfs each, where this user may mount one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

FILLER = "filler"
MIB = 2**20


class SmallDisk:
    """A file system of its own at a folder."""

    def __init__(self, folder: Path, size_mib: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=700", "tmpfs", str(folder)],
            check=True,
            capture_output=True,
            timeout=10,
        )

    def fill(self) -> None:
        """Not a byte is left."""
        with open(self.folder / FILLER, "ab", buffering=0) as file:
            for size in (MIB, 4096, 1):
                with contextlib.suppress(OSError):  # no space left on device: that is the aim
                    while file.write(b"\0" * size) == size:
                        continue

    def empty(self) -> None:
        """As before `fill`."""
        (self.folder / FILLER).unlink(missing_ok=True)

    def close(self) -> None:
        """The file system goes, with all that is on it."""
        subprocess.run(["umount", "-l", str(self.folder)], check=False, capture_output=True, timeout=10)


def may_mount(folder: Path) -> bool:
    """Whether this user may."""
    if os.geteuid() != 0:
        return False
    try:
        SmallDisk(folder, 1).close()
    except (OSError, subprocess.SubprocessError):
        return False
    return True
