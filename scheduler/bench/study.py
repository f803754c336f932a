"""Does all runs of a selection that are not done yet, one a core, and writes each as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Protocol

from scheduler.bench.execute import lost, prepare
from scheduler.bench.plan import Run
from scheduler.bench.results import Results, Row
from scheduler.bench.sources import Sources
from scheduler.replay.workers import spread_over_processes

Watch = Callable[[Row], None]
"""Called with every row as it is written."""


class Spread(Protocol):
    """A way to do tasks beside each other, each taken when there is room for it; `prepare` answers what does one."""

    def __call__(
        self, prepare: Callable[[], Callable[[Run, Callable[[None], None]], Row]], tasks: Iterable[Run]
    ) -> Iterator[tuple[Run, Row]]: ...


@dataclass(frozen=True, slots=True)
class OverProcesses:
    """So many processes of this machine."""

    processes: int

    def __call__(
        self, prepare: Callable[[], Callable[[Run, Callable[[None], None]], Row]], tasks: Iterable[Run]
    ) -> Iterator[tuple[Run, Row]]:
        return spread_over_processes(prepare, tasks, self.processes, _nothing, lost)


def run_study(
    runs: Sequence[Run],
    sources: Sources,
    results: Results,
    spread: Spread,
    watch: Watch,
    goes_on: Callable[[], bool] = lambda: True,
) -> tuple[Row, ...]:
    """The rows of all runs, those done before included, in no particular order.

    Stopped at any moment, it has lost the runs in work and nothing else. Once `goes_on` says no, none is begun any more
    and those in work are done.
    """
    done = results.done()
    todo = [run for run in runs if run.key not in done]
    if todo:
        for _, row in spread(partial(prepare, sources), takewhile(lambda _: goes_on(), todo)):
            results.add(row)
            watch(row)
    wanted = {run.key for run in runs}
    return tuple(row for row in results.rows if row.key in wanted)


def _nothing(_run: Run, _news: None) -> None:
    """Runs tell nothing on their way."""
