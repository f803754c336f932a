"""A seed is a history: the same in every process, whatever the hash seed; another seed is another history."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPTIONS = ("--seconds", "15", "--agents", "6")


def trace_hash(seed: int, hash_seed: str) -> str:
    """Of a run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", f"{seed}:1", *OPTIONS],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    return str(json.loads(done.stdout.splitlines()[0])["trace_hash"])


def test_a_seed_gives_one_history_in_any_process() -> None:
    hashes = [trace_hash(11, hash_seed) for hash_seed in ("0", "1", "random")]
    assert len(set(hashes)) == 1
    assert trace_hash(12, "0") != hashes[0]
