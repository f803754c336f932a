"""Steps are told from a thread of their own: what other stages know of them comes when the next step already runs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from agents.worker.progress import Late, Report


class StepTeller:
    """Tells steps one after the other, none before what other stages tell of it is there."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._thread = ThreadPoolExecutor(1, "steps")
        self._told: list[Future[None]] = []

    def step(
        self,
        step: int,
        loss: float,
        step_time_s: float,
        tokens: int,
        *,
        grad_norm: Callable[[], float] | None,
        compute_s: float,
        send_s: float | None,
        late: Callable[[], Late] | None = None,
    ) -> None:
        """As `Report.step`, at once as far as the caller is concerned. `grad_norm` and `late` may wait.

        Raises what waiting for those of an earlier step raised.
        """

        def tell() -> None:
            self._report.step(
                step,
                loss,
                step_time_s,
                tokens,
                grad_norm=None if grad_norm is None else grad_norm(),
                compute_s=compute_s,
                send_s=send_s,
                late=None if late is None else late(),
            )

        for future in [each for each in self._told if each.done()]:
            self._told.remove(future)
            future.result()
        self._told.append(self._thread.submit(tell))

    def finish(self) -> None:
        """Wait until all are told. Raises what waiting for others raised."""
        for future in self._told:
            future.result()
        self._told.clear()
