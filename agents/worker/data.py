"""The corpus as a line of bytes, and the batch of a step as a function of (seed, step, replica)."""

from __future__ import annotations

import errno
import hashlib
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agents.worker.causes import Cause, WorkerEndError
from agents.worker.randomness import generator_for

DEFAULT_CORPUS_BYTES = 6_000_000
DIGEST_BYTES = 8_000_000
LEFT_OUT = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "encodings", "pydoc_data"}
)
"""Packages that are not the library itself, or hold tables rather than text."""


class Corpus:
    """Bytes to learn from; every byte is a token."""

    def __init__(self, content: npt.NDArray[np.uint8]) -> None:
        self._content = content
        head = content[:DIGEST_BYTES].tobytes()
        self.digest = hashlib.sha256(f"{len(content)}:".encode() + head).hexdigest()
        """Of its length and its first megabytes: enough to notice that two ranks read different corpora."""

    def __len__(self) -> int:
        return len(self._content)

    def batch(
        self, seed: int, step: int, replica: int, sequences: int, seq_len: int
    ) -> tuple[Tensor, Tensor]:
        """Inputs and targets [sequences, seq_len] (int64) of a replica's step: random windows, and the same
        one byte on. The same arguments give the same batch on every rank, so a resumed job goes on exactly."""
        generator = generator_for(seed, "batch", step, replica)
        starts = torch.randint(len(self._content) - seq_len, (sequences,), generator=generator).numpy()
        windows = self._content[starts[:, None] + np.arange(seq_len + 1)]
        tokens = torch.from_numpy(windows.astype(np.int64))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def load_corpus(path: str | None, seq_len: int) -> Corpus:
    """The corpus at `path`, or the source text of this interpreter's standard library.

    Raises:
        WorkerEndError: `corpus-missing` or `corpus-too-short`, naming the path.
    """
    try:
        content = _standard_library() if path is None else _mapped(Path(path))
    except OSError as error:
        where = path or f"(by default the standard library in {sysconfig.get_path('stdlib')})"
        raise WorkerEndError(
            Cause.CORPUS_MISSING,
            f"run.corpus {where}: {error.strerror or error}; "
            "it must be a readable file on every node that the job may use",
        ) from error
    if len(content) <= seq_len:
        raise WorkerEndError(
            Cause.CORPUS_TOO_SHORT,
            f"run.corpus {path}: {len(content)} bytes, but a sequence and its targets need {seq_len + 1}",
        )
    return Corpus(content)


def _mapped(path: Path) -> npt.NDArray[np.uint8]:
    if path.stat().st_size == 0:
        return np.empty(0, dtype=np.uint8)  # an empty file cannot be mapped
    return np.memmap(path, dtype=np.uint8, mode="r")


def _standard_library() -> npt.NDArray[np.uint8]:
    """The modules of the standard library one after the other, by their paths, up to a few megabytes."""
    root = Path(sysconfig.get_path("stdlib"))
    text = bytearray()
    for source in _sources(root):
        text += source.read_bytes()
        if len(text) >= DEFAULT_CORPUS_BYTES:
            break
    if not text:
        raise FileNotFoundError(errno.ENOENT, "no source text there", str(root))
    return np.frombuffer(bytes(text[:DEFAULT_CORPUS_BYTES]), dtype=np.uint8)


def _sources(folder: Path) -> Iterator[Path]:
    """The modules in `folder` and below, in the order of their names."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name not in LEFT_OUT:
            yield from _sources(Path(entry.path))
        elif entry.name.endswith(".py"):
            yield Path(entry.path)
