"""Tasks are spread over processes, and a process that dies takes one task with it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from functools import partial
from itertools import takewhile

import pytest

from scheduler.replay.errors import ReplayError
from scheduler.replay.workers import spread_over_processes

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
