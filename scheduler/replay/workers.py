"""Spreads tasks over processes of a fresh interpreter each, and hands out results as they come."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

Task = TypeVar("Task")
News = TypeVar("News")
Result = TypeVar("Result")

Work = Callable[[Task, Callable[[News], None]], Result]
"""Does one task; may tell news of it meanwhile."""


def spread_over_processes(
    prepare: Callable[[], Work[Task, News, Result]],
    tasks: Iterable[Task],
    processes: int,
    watch: Callable[[Task, News], None],
    lost: Callable[[Task, int | None], Result],
) -> Iterator[tuple[Task, Result]]:
    """(task, result) of every task, in the order in which they are done; each process does one at a time.

    A task is taken from `tasks` when a process is free for it: an iterator that ends lets what is in work be done.

    `prepare` runs once in each process and answers what does the tasks there; it, the tasks and the results cross
    process boundaries. Where a process ends by itself, `lost` is called with its task and exit code: it raises, or
    answers a result, and another process goes on. Closing the iterator, or an error, ends all processes.
    """
    todo = iter(tasks)
    doing: dict[Connection, Task] = {}

    with _Crew(prepare) as crew:

        def begin(connection: Connection, task: Task) -> None:
            doing[connection] = task
            crew.tell(connection, task)

        for first in islice(todo, processes):
            begin(crew.hire(), first)
        while doing:
            for ready in wait(list(doing)):
                assert isinstance(ready, Connection)  # noqa: S101 - only connections are waited for
                message = _receive(ready)
                if message is not None and not message.done:
                    watch(doing[ready], message.content)
                    continue
                task = doing.pop(ready)
                result = lost(task, crew.bury(ready)) if message is None else message.content
                for following in islice(todo, 1):
                    begin(crew.hire() if message is None else ready, following)
                yield task, result


@dataclass(frozen=True, slots=True)
class _Message(Generic[Result]):
    """What a process tells: news of its task, or, when it is done, the result."""

    content: Result
    done: bool


class _Crew:
    """The processes of one spread; none of them is left when the block ends, however it ends."""

    def __init__(self, prepare: Callable[[], Work[Any, Any, Any]]) -> None:
        self._prepare = prepare
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[Connection, BaseProcess] = {}

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for connection, process in self._processes.items():
            connection.close()
            process.terminate()
            process.join()

    def hire(self) -> Connection:
        """Starts a process; answers the way to it."""
        mine, theirs = self._context.Pipe()
        process: BaseProcess = self._context.Process(target=_serve, args=(self._prepare, theirs), daemon=True)
        process.start()
        theirs.close()
        self._processes[mine] = process
        return mine

    def tell(self, connection: Connection, task: object) -> None:
        """Hands a task over; that the process is gone already is heard when it is listened to."""
        with suppress(BrokenPipeError):
            connection.send(task)

    def bury(self, connection: Connection) -> int | None:
        """Forgets a process that has ended; answers its exit code."""
        process = self._processes.pop(connection)
        connection.close()
        process.join()
        return process.exitcode


def _receive(connection: Connection) -> _Message[Any] | None:
    """The next message; None where the process has ended."""
    try:
        message = connection.recv()
    except (EOFError, ConnectionResetError):
        return None
    assert isinstance(message, _Message)  # noqa: S101 - nothing else is sent
    return message


def _serve(prepare: Callable[[], Work[Task, News, Result]], connection: Connection) -> None:
    """Body of a process: tasks come in, messages go out; ends when the parent hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work = prepare()

    def tell(news: News) -> None:
        connection.send(_Message(news, done=False))

    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(_Message(work(task, tell), done=True))


def _end_with_parent() -> None:
    """Ends this process once its parent is gone, in the middle of a task as well: nobody waits for it any more."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101 - `_serve` is run by a process that was started for it
    wait([parent.sentinel])
    os._exit(1)
