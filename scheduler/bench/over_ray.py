"""Does the runs of a study on a Ray cluster (the extra `ray`): one run a core, wherever there is one.

The nodes need the same installation, and the real data under the same path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import ray

from scheduler.bench.plan import Run
from scheduler.bench.results import Row

_Work = Callable[[Run, Callable[[None], None]], Row]


class OverRay:
    """The cluster of RAY_ADDRESS; without one that of this machine, which is started if it does not run."""

    def __init__(self, most: int | None = None) -> None:
        """`most` is how many cores to take at most; all of the cluster by default."""
        self._most = most

    def __call__(self, prepare: Callable[[], _Work], tasks: Sequence[Run]) -> Iterator[tuple[Run, Row]]:
        """(run, row) of every run as it is done. The connection, and what was started for it, ends with it."""
        ray.init(include_dashboard=False, log_to_driver=False)
        try:
            cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
            count = min(cores, len(tasks), self._most or cores)
            remote = ray.remote(num_cpus=1)(_Worker)
            workers = [remote.remote(prepare) for _ in range(count)]
            yield from ray.util.ActorPool(workers).map_unordered(
                lambda worker, task: worker.execute.remote(task), list(tasks)
            )
        finally:
            ray.shutdown()


class _Worker:
    """A process of the cluster; it keeps what it has read and drawn for its next run."""

    def __init__(self, prepare: Callable[[], _Work]) -> None:
        self._work = prepare()

    def execute(self, task: Run) -> tuple[Run, Row]:
        """Does one run."""
        return task, self._work(task, _nothing)


def _nothing(_news: None) -> None:
    """Runs tell nothing on their way."""
