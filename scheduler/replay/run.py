"""Runs a scenario under several policies, in this process or in several, and publishes all results or none."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from scheduler.errors import InvalidValueError, SchedulerError
from scheduler.policies import PolicyConfig
from scheduler.replay.engine import Progress, replay
from scheduler.replay.errors import PricesEndError, ReplayError
from scheduler.replay.files import OutputFolder
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.workers import spread_over_processes
from scheduler.replay.workload import jobs_of
from scheduler.spec.scenario import Scenario, load_scenario

_WORTH_A_PROCESS = 100  # jobs; a further process costs some seconds of importing and compiling
_REPORT_EVERY = 20  # events between two messages of a worker process

Watch = Callable[[str, int, int, float], None]
"""Called with the policy, jobs ended, jobs in all, and the virtual time in seconds."""

News = tuple[int, int, float]
"""Jobs ended, jobs in all, virtual time in seconds."""


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
class _Failure:
    """Why a policy's replay failed, in words that cross a process boundary."""

    message: str
    prices_end: bool


def _in_processes(
    path: Path, configs: Sequence[PolicyConfig], folder: OutputFolder, watch: Watch, count: int
) -> list[dict[str, Any]]:
    """A few workers, each given the next policy when it has done one."""
    summaries: dict[str, dict[str, Any]] = {}

    def heard(config: PolicyConfig, news: News) -> None:
        watch(config.name, *news)

    prepare = partial(_prepare, path, folder)
    for config, outcome in spread_over_processes(prepare, configs, count, heard, _lost):
        if isinstance(outcome, _Failure):
            raise (PricesEndError if outcome.prices_end else ReplayError)(outcome.message)
        summaries[config.name] = outcome
    return [summaries[config.name] for config in configs]


def _prepare(
    path: Path, folder: OutputFolder
) -> Callable[[PolicyConfig, Callable[[News], None]], dict[str, Any] | _Failure]:
    """Reads the scenario once for all policies that a process is given."""
    scenario = load_scenario(path)
    jobs = jobs_of(scenario)

    def stage(config: PolicyConfig, tell: Callable[[News], None]) -> dict[str, Any] | _Failure:
        try:
            return folder.stage(scenario, replay(scenario, jobs, config, _now_and_then(tell)))
        except SchedulerError as error:
            return _Failure(str(error), isinstance(error, PricesEndError))

    return stage


def _lost(_config: PolicyConfig, exit_code: int | None) -> NoReturn:
    raise ReplayError(f"a replay process ended unexpectedly (exit code {exit_code})")


def _now_and_then(tell: Callable[[News], None]) -> Progress:
    events = 0

    def progress(done: int, total: int, now_s: float) -> None:
        nonlocal events
        events += 1
        if events % _REPORT_EVERY == 0 or done == total:
            tell((done, total, now_s))

    return progress
