"""Spreads tasks over processes of a fresh interpreter each, and hands out results as they come."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from scheduler.replay.errors import ReplayError

Task = TypeVar("Task")
News = TypeVar("News")
Result = TypeVar("Result")

Work = Callable[[Task, Callable[[News], None]], Result]
"""Does one task; may tell news of it meanwhile."""


def spread_over_processes(
    prepare: Callable[[], Work[Task, News, Result]],
    tasks: Sequence[Task],
    processes: int,
    watch: Callable[[Task, News], None],
) -> Iterator[tuple[Task, Result]]:
    """(task, result) of every task, in the order in which they are done; each process does one at a time.

    `prepare` runs once in each process and answers what does the tasks there; it, the tasks and the results cross
    process boundaries. Closing the iterator, or an error, ends all processes. Raises ReplayError where one of them
    ends by itself.
    """
    count = min(processes, len(tasks))
    todo = iter(range(len(tasks)))
    left = len(tasks)
    with _workers(prepare, count) as workers:
        doing: dict[Connection, int] = {}
        for connection in workers:
            doing[connection] = next(todo)
            connection.send(tasks[doing[connection]])
        while left:
            for ready in wait(list(workers)):
                assert isinstance(ready, Connection)  # noqa: S101 - only connections are waited for
                task = tasks[doing[ready]]
                message = _receive(ready, workers[ready])
                if not message.done:
                    watch(task, message.content)
                    continue
                left -= 1
                following = next(todo, None)
                if following is not None:
                    doing[ready] = following
                    ready.send(tasks[following])
                yield task, message.content


@dataclass(frozen=True, slots=True)
class _Message(Generic[Result]):
    """What a process tells: news of its task, or, when it is done, the result."""

    content: Result
    done: bool


@contextmanager
def _workers(
    prepare: Callable[[], Work[Task, News, Result]], count: int
) -> Iterator[dict[Connection, BaseProcess]]:
    """None of the processes is left when the block ends, however it ends."""
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(count):
            mine, theirs = context.Pipe()
            process: BaseProcess = context.Process(target=_serve, args=(prepare, theirs), daemon=True)
            process.start()
            theirs.close()
            workers[mine] = process
        yield workers
    finally:
        for connection, process in workers.items():
            connection.close()
            process.terminate()
            process.join()


def _receive(connection: Connection, process: BaseProcess) -> _Message[Any]:
    try:
        message = connection.recv()
    except EOFError as error:
        process.join()
        raise ReplayError(f"a replay process ended unexpectedly (exit code {process.exitcode})") from error
    assert isinstance(message, _Message)  # noqa: S101 - nothing else is sent
    return message


def _serve(prepare: Callable[[], Work[Task, News, Result]], connection: Connection) -> None:
    """Body of a process: tasks come in, messages go out; ends when the parent hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    work = prepare()

    def tell(news: News) -> None:
        connection.send(_Message(news, done=False))

    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(_Message(work(task, tell), done=True))
