"""A seed is a history: the same in every process, whatever the hash seed; another seed is another history."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPTIONS = ("--seconds", "15", "--agents", "6")


def trace_hashes(hash_seed: str) -> tuple[str, ...]:
    """Of two seeds, run in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", "11:2", *OPTIONS],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    return tuple(json.loads(line)["trace_hash"] for line in done.stdout.splitlines()[:2])


def test_a_seed_gives_one_history_in_any_process() -> None:
    of_processes = {trace_hashes(hash_seed) for hash_seed in ("0", "1", "random")}
    assert len(of_processes) == 1
    first, second = of_processes.pop()
    assert first != second
