"""Tasks are spread over processes, and a process that dies takes one task with it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import psutil
import pytest

from scheduler.replay.errors import ReplayError
from scheduler.replay.workers import spread_over_processes
from tests.integration.agents.harness import alive

FATAL = 3


def _prepare(factor: int) -> Callable[[int, Callable[[str], None]], int]:
    def work(task: int, tell: Callable[[str], None]) -> int:
        if task == FATAL:
            os._exit(7)
        tell(f"at {task}")
        return task * factor

    return work


def _as_code(_task: int, exit_code: int | None) -> int:
    return -(exit_code or 0)


def _refuse(task: int, exit_code: int | None) -> int:
    raise ReplayError(f"{task}: {exit_code}")


def test_every_task_is_done_and_a_dead_process_is_replaced() -> None:
    heard: list[tuple[int, str]] = []
    done = dict(
        spread_over_processes(
            partial(_prepare, 10), range(7), 2, lambda task, news: heard.append((task, news)), _as_code
        )
    )
    assert done == {task: -7 if task == FATAL else 10 * task for task in range(7)}
    assert sorted(heard) == [(task, f"at {task}") for task in range(7) if task != FATAL]
    assert not multiprocessing.active_children()


def test_a_task_is_taken_when_a_process_is_free_for_it_and_what_is_in_work_is_done() -> None:
    taken: list[int] = []
    tasks = (taken.append(task) or task for task in range(6))  # type: ignore[func-returns-value]
    done = dict(
        spread_over_processes(
            partial(_prepare, 10),
            takewhile(lambda task: task < 3, tasks),
            2,
            lambda task, news: None,
            _as_code,
        )
    )
    assert done == {0: 0, 1: 10, 2: 20}
    assert taken == [0, 1, 2, 3]


def test_an_error_or_a_closed_iterator_leaves_no_process() -> None:
    spread = spread_over_processes(partial(_prepare, 1), [FATAL, 1], 2, lambda task, news: None, _refuse)
    with pytest.raises(ReplayError, match=f"{FATAL}: 7"):
        dict(spread)
    assert not multiprocessing.active_children()

    spread = spread_over_processes(partial(_prepare, 1), range(5), 2, lambda task, news: None, _refuse)
    next(spread)
    spread.close()
    assert not multiprocessing.active_children()


def test_nothing_to_do_starts_nothing() -> None:
    assert list(spread_over_processes(partial(_prepare, 1), [], 2, lambda task, news: None, _refuse)) == []


def _prepare_endless(file: Path) -> Callable[[int, Callable[[str], None]], int]:
    def work(task: int, tell: Callable[[str], None]) -> int:
        file.write_text(str(os.getpid()))
        time.sleep(600.0)
        return task

    return work


def _spread_endless(file: Path) -> None:
    list(spread_over_processes(partial(_prepare_endless, file), [0], 1, lambda task, news: None, _as_code))


def test_in_the_middle_of_a_task_a_process_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    command = "import sys, pathlib; from tests.unit.replay.test_workers import _spread_endless as spread; "
    command += "spread(pathlib.Path(sys.argv[1]))"
    parent = subprocess.Popen([sys.executable, "-c", command, str(file)])
    try:
        pid = int(_until(lambda: file.exists() and file.read_text()))
        assert psutil.pid_exists(pid)
    finally:
        parent.kill()
        parent.wait()
    assert _until(lambda: not alive(pid))


def _until(found: Callable[[], Any], within_s: float = 60.0) -> Any:
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        answer = found()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"not within {within_s} s")
