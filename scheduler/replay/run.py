"""Runs a scenario under several policies, in this process or in several, and publishes all results or none."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from scheduler.errors import InvalidValueError, SchedulerError
from scheduler.policies import PolicyConfig
from scheduler.replay.engine import Progress, replay
from scheduler.replay.errors import PricesEndError, ReplayError
from scheduler.replay.files import OutputFolder
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.workload import jobs_of
from scheduler.spec.scenario import Scenario, load_scenario

_WORTH_A_PROCESS = 100  # jobs; a further process costs some seconds of importing and compiling
_REPORT_EVERY = 20  # events between two messages of a worker process

Watch = Callable[[str, int, int, float], None]
"""Called with the policy, jobs ended, jobs in all, and the virtual time in seconds."""


def run_policies(
    scenario: Scenario,
    configs: Sequence[PolicyConfig],
    out: Path,
    watch: Watch,
    processes: int | None = None,
) -> list[dict[str, Any]]:
    """Replays the scenario under each policy and writes `out`/<policy>/; answers the summaries in their order.

    Raises SpecError, PricesEndError, ReplayError or InvalidValueError; then nothing is written.
    """
    names = [config.name for config in configs]
    if len(set(names)) != len(names):
        raise InvalidValueError("--policy", ",".join(names), "every policy once")
    jobs = jobs_of(scenario)
    folder = OutputFolder(out, names)
    if processes is None:
        processes = (os.cpu_count() or 1) if len(jobs) >= _WORTH_A_PROCESS else 1
    count = min(processes, len(configs))
    try:
        if count > 1:
            summaries = _in_processes(scenario.path, configs, folder, watch, count)
        else:
            summaries = [_one(scenario, jobs, config, folder, watch) for config in configs]
        folder.publish()
    finally:
        folder.discard()
    return summaries


def _one(
    scenario: Scenario, jobs: Sequence[ReplayJob], config: PolicyConfig, folder: OutputFolder, watch: Watch
) -> dict[str, Any]:
    def progress(done: int, total: int, now_s: float) -> None:
        watch(config.name, done, total, now_s)

    return folder.stage(scenario, replay(scenario, jobs, config, progress))


@dataclass(frozen=True, slots=True)
class _Update:
    """What a worker process tells: progress, a summary, or why it failed."""

    index: int
    progress: tuple[int, int, float] | None = None
    summary: dict[str, Any] | None = None
    failure: str | None = None
    prices_end: bool = False


def _in_processes(
    path: Path, configs: Sequence[PolicyConfig], folder: OutputFolder, watch: Watch, count: int
) -> list[dict[str, Any]]:
    """A few workers, each given the next policy when it has done one."""
    summaries: dict[int, dict[str, Any]] = {}
    todo = iter(range(len(configs)))
    with _workers(path, configs, folder, count) as workers:
        for connection in workers:
            connection.send(next(todo))
        while len(summaries) < len(configs):
            for ready in wait(list(workers)):
                assert isinstance(ready, Connection)  # noqa: S101 - only connections are waited for
                update = _receive(ready, workers[ready])
                if update.progress is not None:
                    watch(configs[update.index].name, *update.progress)
                elif update.summary is not None:
                    summaries[update.index] = update.summary
                    following = next(todo, None)
                    if following is not None:
                        ready.send(following)
                else:
                    kind = PricesEndError if update.prices_end else ReplayError
                    raise kind(update.failure)
    return [summaries[index] for index in range(len(configs))]


@contextmanager
def _workers(
    path: Path, configs: Sequence[PolicyConfig], folder: OutputFolder, count: int
) -> Iterator[dict[Connection, BaseProcess]]:
    """Processes of a fresh interpreter each; none is left when the block ends, however it ends."""
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(count):
            mine, theirs = context.Pipe()
            process: BaseProcess = context.Process(
                target=_work, args=(path, list(configs), folder, theirs), daemon=True
            )
            process.start()
            theirs.close()
            workers[mine] = process
        yield workers
    finally:
        for connection, process in workers.items():
            connection.close()
            process.terminate()
            process.join()


def _receive(connection: Connection, process: BaseProcess) -> _Update:
    try:
        update = connection.recv()
    except EOFError as error:
        process.join()
        raise ReplayError(f"a replay process ended unexpectedly (exit code {process.exitcode})") from error
    assert isinstance(update, _Update)  # noqa: S101 - nothing else is sent
    return update


def _work(path: Path, configs: Sequence[PolicyConfig], folder: OutputFolder, connection: Connection) -> None:
    """Body of a worker process: indices of policies come in, updates go out; ends when the parent hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    scenario = load_scenario(path)
    jobs = jobs_of(scenario)
    while True:
        try:
            index = connection.recv()
        except EOFError:
            return
        try:
            summary = folder.stage(
                scenario, replay(scenario, jobs, configs[index], _reporter(connection, index))
            )
            connection.send(_Update(index, summary=summary))
        except SchedulerError as error:
            ended = isinstance(error, PricesEndError)
            connection.send(_Update(index, failure=str(error), prices_end=ended))


def _reporter(connection: Connection, index: int) -> Progress:
    events = 0

    def progress(done: int, total: int, now_s: float) -> None:
        nonlocal events
        events += 1
        if events % _REPORT_EVERY == 0 or done == total:
            connection.send(_Update(index, progress=(done, total, now_s)))

    return progress
