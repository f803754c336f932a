"""The compiled kernel: loaded only when needed, on any file system, and equal to the same loop in Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np

import scheduler
from scheduler.pipeline import kernel
from scheduler.pipeline.choice import budget_caps
from scheduler.pipeline.iteration import forms
from scheduler.pipeline.plan.lag_kernel import run_lagged

SIMULATE = (
    "from scheduler.pipeline.schedules import strict_window\n"
    "from scheduler.pipeline.timeline import Chain, simulate\n"
    "chain = Chain((0.25,) * 4, (0.5,) * 4, (0.0,) * 3, (0.0,) * 3)\n"
    "print(simulate(chain, strict_window(4, 8), 8).makespan_s)\n"
)


def python(code: str, **environment: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def test_importing_the_planner_neither_compiles_nor_loads_the_compiler():
    code = (
        "import sys, scheduler.evaluate, scheduler.pipeline.iteration, scheduler.presets\n"
        "print('numba' in sys.modules)"
    )
    assert python(code) == "False"


def test_it_runs_where_neither_the_package_nor_the_home_can_be_written(tmp_path):
    copy = tmp_path / "site" / "scheduler"
    shutil.copytree(Path(scheduler.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    # A file in the place of the cache folder refuses everybody, also a superuser, to whom modes mean nothing.
    (copy / "pipeline" / "__pycache__").write_text("not a folder")
    blocked = tmp_path / "blocked"
    blocked.write_text("not a folder")
    answer = python(
        "import scheduler; assert scheduler.__file__.startswith(" + repr(str(tmp_path)) + ")\n" + SIMULATE,
        PYTHONPATH=str(tmp_path / "site"),
        PYTHONSAFEPATH="1",
        HOME=str(blocked),
        XDG_CACHE_HOME=str(blocked),
        NUMBA_CACHE_DIR="",
    )
    assert float(answer) == (8 + 3) * 0.75


def test_the_machine_code_does_what_the_source_says():
    rng = np.random.default_rng(5)
    for stages, micro_batches in ((1, 3), (2, 7), (5, 12)):
        caps = np.sort(rng.integers(1, micro_batches + 1, stages))[::-1].copy()
        times = [rng.uniform(0, 3, size) for size in (stages, stages, stages - 1, stages - 1)]
        for blocking in (False, True):
            arguments = (*times, caps, micro_batches, blocking)
            assert kernel.compiled(kernel.run)(*arguments) == kernel.run(*arguments)
        arguments = (*times, caps, micro_batches)
        assert kernel.compiled(forms)(*arguments) == forms(*arguments)
        limits = rng.integers(stages, 2 * stages + 1, stages)
        arguments = (*times, limits, micro_batches)
        assert (kernel.compiled(budget_caps)(*arguments) == budget_caps(*arguments)).all()


def test_a_timeline_takes_the_memory_of_its_window_whatever_its_micro_batches() -> None:
    stages, micro_batches = 4, 5000
    times, caps = np.ones(stages), np.arange(stages, 0, -1)
    for loop in (
        lambda: kernel.run(times, times, times[1:], times[1:], caps, micro_batches, False),
        lambda: run_lagged(times, times, times, times[1:], times[1:], caps, stages - caps, micro_batches),
    ):
        tracemalloc.start()
        assert loop() > 2 * micro_batches
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < micro_batches * 8


def test_a_loop_lets_other_threads_run_meanwhile():
    """Else a server that plans, or answers a what-if, would answer nothing else until it is done."""
    assert kernel.compiled(forms).targetoptions["nogil"]
