"""The agent's folder on disk, and one folder below it for every process. Nothing is opened through a symlink.

    agent.lock  agent.json  identity.json  lease.json  journal  probe.json
    run/<name>/          what the supervisor keeps (see `supervisor`)
    run/<name>/log/      output
    run/<name>/work/     the worker's own: its current folder and HOME; report.jsonl and tmp/ in it

A process's folder is named by a hash of its key, so no key can lead anywhere else, and paths stay short enough
for the sockets that a worker makes below its TMPDIR.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import Any, BinaryIO, Self

from agents.errors import SettingsError, WorkDirTakenError

IDENTITY_FILE = "identity.json"
REPORT_FILE = "report.jsonl"
_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class WorkDir:
    """The folder of one agent. Made if it is not there; private (0700)."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.path / "run").mkdir(mode=0o700, exist_ok=True)
            os.chmod(self.path, 0o700)
        except OSError as error:
            raise SettingsError("--work-dir", str(path), f"a folder that can be written ({error})") from error
        self._lock: int | None = None

    def lock(self) -> None:
        """Takes the folder for this agent until it ends; WorkDirTakenError if another has it."""
        file = os.open(self.path / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise WorkDirTakenError(
                f"another agent runs in {self.path}: stop it, or give this one a --work-dir of its own"
            ) from None
        self._lock = file

    def unlock(self) -> None:
        """Gives the folder back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def agent_id(self) -> str:
        """The identity of this agent: made once, and lost with the journal that belongs to it."""
        path = self.path / "agent.json"
        if path.exists():
            return str(json.loads(path.read_text(encoding="utf-8"))["agent_id"])
        agent_id = f"agent-{secrets.token_hex(10)}"
        write_file(path, {"agent_id": agent_id})
        return agent_id

    @property
    def identity_file(self) -> Path:
        """The credential of this agent alone (`identity`)."""
        return self.path / IDENTITY_FILE

    @property
    def lease_file(self) -> str:
        """Where the lease's deadline stands (`lease`)."""
        return str(self.path / "lease.json")

    @property
    def journal_file(self) -> Path:
        """The journal (`journal`)."""
        return self.path / "journal"

    @property
    def probe_file(self) -> Path:
        """What was measured on the devices, and when (`probe`)."""
        return self.path / "probe.json"

    def process(self, key: str) -> ProcessFolder:
        """The folder of a process; it need not be there."""
        return ProcessFolder.of(self.path, key)


class ProcessFolder:
    """Everything on disk of one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work = path / "work"
        self.report_file = self.work / REPORT_FILE
        self.tmp = self.work / "tmp"

    @classmethod
    def of(cls, agent_folder: Path, key: str) -> Self:
        """The folder of a key below an agent's."""
        name = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:20]
        return cls(agent_folder / "run" / name)

    def make(self) -> None:
        """New and empty; FileExistsError if it was made before."""
        self.path.mkdir(mode=0o700)
        (self.path / "log").mkdir(mode=0o700)
        self.work.mkdir(mode=0o700)
        self.tmp.mkdir(mode=0o700)

    def remove(self) -> None:
        """Deletes it with all that the worker left there (symlinks are not followed)."""
        shutil.rmtree(self.path, ignore_errors=True)

    def open_log(self) -> int | None:
        """The folder of the output, opened; None if it is not there."""
        return self._open_dir("log")

    def open_report(self) -> BinaryIO | None:
        """What the worker reports; None unless it is a plain file (not a symlink, a pipe or a device)."""
        work = self._open_dir("work")
        if work is None:
            return None
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(REPORT_FILE, flags, dir_fd=work)
        except OSError:
            return None
        finally:
            os.close(work)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            return None
        return os.fdopen(file, "rb")

    def read(self, name: str) -> dict[str, Any] | None:
        """A document of the supervisor's; None if it is not there."""
        folder = self._open_dir(".")
        if folder is None:
            return None
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            return None
        finally:
            os.close(folder)
        with os.fdopen(file, "rb") as stream:
            document = json.load(stream)
        return document if isinstance(document, dict) else None

    def write_stop(self, cause: str) -> None:
        """Asks the supervisor to stop the worker; a first cause stands."""
        if self.path.is_dir() and self.read("stop.json") is None:
            write_file(self.path / "stop.json", {"cause": cause})

    def claim(self) -> bool:
        """Gives up a start that may still be under way: no supervisor starts afterwards. False if one has."""
        try:
            os.close(
                os.open(self.path / "claim", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            )
        except FileNotFoundError:
            return True  # without its folder nothing can start
        except FileExistsError:
            return False
        return True

    def supervised(self) -> bool:
        """Whether a supervisor lives: it holds the lock until it is gone, whatever became of its pid."""
        try:
            file = os.open(self.path / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def _open_dir(self, name: str) -> int | None:
        try:
            folder = os.open(self.path, _DIR)
        except OSError:
            return None
        try:
            return os.open(name, _DIR, dir_fd=folder)
        except OSError:
            return None
        finally:
            os.close(folder)


def write_file(path: Path, document: dict[str, Any]) -> None:
    """A small document, whole or not at all, readable by its owner alone."""
    draft = path.with_name(f"{path.name}.new")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        json.dump(document, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, path)
