"""The environment of a worker: allow-listed from both sides, secrets resolved last and kept nowhere.

From the agent's own environment only what names the system passes (never the agent's token). From the server
every well-formed name passes, except what the agent sets itself and what would change the program before its
first line runs (loader, shell and interpreter hooks).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.errors import RefusedError, SettingsError
from agents.protocol import StageProcess, why_refused
from agents.remains import WORK_FOLDER
from agents.workdir import ProcessFolder

PYTHON = "{python}"
SECRET_PREFIX = "BACE_SECRET_"  # noqa: S105 - the prefix of names, not a secret
SECRET_BYTES = 64 * 1024

_INHERITED = re.compile(
    r"(PATH|LANG|LANGUAGE|LC_[A-Z_]+|TZ|LD_LIBRARY_PATH|CUDA_(HOME|PATH)|NVIDIA_[A-Z_]+"
    r"|SSL_CERT_(FILE|DIR)|(HTTP|HTTPS|NO|ALL)_PROXY|(http|https|no|all)_proxy)"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True, slots=True)
class Devices:
    """What a node's GPU indices stand for: `cuda` devices by their UUID, or CPU slots."""

    uuids: tuple[str, ...] = ()
    slots: int = 0
    interface: str | None = None
    slot_memory_bytes: float | None = None

    @property
    def count(self) -> int:
        """GPUs or slots of the node."""
        return len(self.uuids) or self.slots


@dataclass(frozen=True, slots=True)
class Execution:
    """What is executed. `secrets` are the values that must not show in the output; never journaled."""

    argv: tuple[str, ...]
    env: dict[str, str]
    secrets: tuple[str, ...]


class EnvironmentBuilder:
    """Makes the environment of processes on this agent.

    `inherited` is the agent's own environment; `secrets_dir` the folder that `file:` references are read from;
    `passed` the variables (`passable`) of the agent's that its workers get beside those of the system.
    """

    def __init__(self, inherited: Mapping[str, str], secrets_dir: Path, passed: Collection[str] = ()) -> None:
        self._agent_env = dict(inherited)
        self._secrets_dir = secrets_dir
        self._passed = frozenset(passed)

    def execution(self, process: StageProcess, devices: Devices, folder: ProcessFolder) -> Execution:
        """argv and environment of a process; RefusedError names what is not allowed."""
        env = {
            name: value
            for name, value in self._agent_env.items()
            if name in self._passed or _INHERITED.fullmatch(name)
        }
        for name, value in process.env.items():
            _check_variable(name, value)
            env[name] = value
        secrets = {name: self._resolve(name, reference) for name, reference in process.secrets.items()}
        env |= secrets
        env |= _place(process, devices, folder)
        return Execution(argv=_argv(process.argv), env=env, secrets=tuple(secrets.values()))

    def _resolve(self, name: str, reference: str) -> str:
        _check_variable(name, "")
        kind, _, target = reference.partition(":")
        if kind == "env":
            value = self._agent_env.get(SECRET_PREFIX + target)
            expected = f"the variable {SECRET_PREFIX}{target} in the agent's environment"
        elif kind == "file":
            value = self._read_secret_file(target)
            expected = f"a file {target!r} of at most {SECRET_BYTES} bytes under the agent's --secrets-dir"
        else:
            raise RefusedError(
                "secret-refused", f"secret {name}: expected file:NAME or env:NAME, not {kind!r}"
            )
        if not value or "\0" in value:
            raise RefusedError("secret-missing", f"secret {name}: needs {expected}")
        return value

    def _read_secret_file(self, target: str) -> str | None:
        """Links are followed (mounted secrets are made of them), but never out of the folder."""
        root = self._secrets_dir.resolve()
        try:
            path = (root / target).resolve(strict=True)
            if not path.is_relative_to(root) or not path.is_file() or path.stat().st_size > SECRET_BYTES:
                return None
            return path.read_text(encoding="utf-8").rstrip("\n")
        except (OSError, ValueError):
            return None


def passable(names: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The variables of an agent's `environment` that its workers are to get; SettingsError where they cannot.

    Not the agent's own (`BACE_…`): its secrets reach a job by references alone.
    """
    for name in names:
        refused = "is not a name of letters, digits and _" if not _NAME.fullmatch(name) else why_refused(name)
        if name.startswith("BACE_"):
            refused = "is the agent's own"
        if refused:
            raise SettingsError("--worker-env", name, f"a variable that workers may have; this one {refused}")
        if name not in environment:
            raise SettingsError("--worker-env", name, "a variable that is set in the agent's environment")
    return tuple(names)


def _check_variable(name: str, value: str) -> None:
    if not _NAME.fullmatch(name):
        raise RefusedError(
            "environment-refused", f"env {name[:64]!r}: expected a name of letters, digits and _"
        )
    refused = why_refused(name)
    if refused:
        raise RefusedError("environment-refused", f"env {name}: {refused}; leave it out")
    if not _passable(value):
        raise RefusedError(
            "environment-refused", f"env {name}: the value holds a character no process can be given"
        )


def _place(process: StageProcess, devices: Devices, folder: ProcessFolder) -> dict[str, str]:
    """What the agent itself says to the worker, over anything that came from elsewhere."""
    place = {
        "BACE_REPORT": str(folder.report_file),
        WORK_FOLDER: str(folder.work),
        "HOME": str(folder.work),
        "TMPDIR": str(folder.tmp),
        "PWD": str(folder.work),
    }
    if devices.uuids:
        place["BACE_DEVICE"] = "cuda"
        place["CUDA_VISIBLE_DEVICES"] = ",".join(devices.uuids[index] for index in process.gpu_indices)
    else:
        place["BACE_DEVICE"] = "cpu"
        place["CUDA_VISIBLE_DEVICES"] = ""
        place["OMP_NUM_THREADS"] = str(len(process.gpu_indices))
    if devices.interface is not None:
        place["GLOO_SOCKET_IFNAME"] = devices.interface
        place["NCCL_SOCKET_IFNAME"] = devices.interface
    return place


def _argv(argv: Sequence[str]) -> tuple[str, ...]:
    for position, argument in enumerate(argv):
        if not _passable(argument):
            raise RefusedError(
                "argv-refused",
                f"argv[{position}]: holds a character no process can be given ({argument[:64]!r})",
            )
    if not argv[0]:
        raise RefusedError("argv-refused", "argv[0]: is empty; expected the program to execute")
    return (sys.executable if argv[0] == PYTHON else argv[0], *argv[1:])


def _passable(text: str) -> bool:
    """Whether the system can pass it to a process: no NUL, and encodable."""
    if "\0" in text:
        return False
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True
