"""Does the runs of a study on a Ray cluster (the extra `ray`): one run a core, wherever there is one.

The nodes need the same installation, and the real data under the same path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import ray

from scheduler.bench.plan import Run
from scheduler.bench.results import Row

_Work = Callable[[Run, Callable[[None], None]], Row]


class OverRay:
    """The cluster of RAY_ADDRESS; without one that of this machine, which is started if it does not run."""

    def __init__(self, most: int | None = None) -> None:
        """`most` is how many cores to take at most; all of the cluster by default."""
        self._most = most

    def __call__(self, prepare: Callable[[], _Work], tasks: Iterable[Run]) -> Iterator[tuple[Run, Row]]:
        """(run, row) of every run as it is done. The connection, and what was started for it, ends with it."""
        ray.init(include_dashboard=False, log_to_driver=False)
        try:
            cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
            todo = iter(tasks)
            first = list(islice(todo, min(cores, self._most or cores)))
            remote = ray.remote(num_cpus=1)(_Worker)
            pool = ray.util.ActorPool([remote.remote(prepare) for _ in first])
            for task in first:
                pool.submit(_execute, task)
            while pool.has_next():
                done = pool.get_next_unordered()
                for task in islice(todo, 1):
                    pool.submit(_execute, task)
                yield done
        finally:
            ray.shutdown()


class _Worker:
    """A process of the cluster; it keeps what it has read and drawn for its next run."""

    def __init__(self, prepare: Callable[[], _Work]) -> None:
        self._work = prepare()

    def execute(self, task: Run) -> tuple[Run, Row]:
        """Does one run."""
        return task, self._work(task, _nothing)


def _execute(worker: Any, task: Run) -> Any:
    return worker.execute.remote(task)


def _nothing(_news: None) -> None:
    """Runs tell nothing on their way."""
