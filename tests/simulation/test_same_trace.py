"""A seed is a history: the same in every process, whatever the hash seed; another seed is another history."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.simulation.run import Plan, run

ROOT = Path(__file__).parents[2]
SECONDS, AGENTS = 15.0, 6
OPTIONS = ("--seconds", str(SECONDS), "--agents", str(AGENTS))


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
    here = tuple(run(Plan(seed, SECONDS, AGENTS)).document()["trace_hash"] for seed in (11, 12))
    assert {trace_hashes(hash_seed) for hash_seed in ("0", "random")} == {here}
    assert here[0] != here[1]
