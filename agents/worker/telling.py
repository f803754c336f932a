"""Steps are told from a thread of their own: the norm of their gradients comes when the next step already runs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from agents.worker.progress import Report


class StepTeller:
    """Tells steps one after the other, none before its gradient norm is there."""

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
    ) -> None:
        """As `Report.step`, at once as far as the caller is concerned. `grad_norm` may wait.

        Raises what waiting for an earlier step's norm raised.
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
            )

        for future in [each for each in self._told if each.done()]:
            self._told.remove(future)
            future.result()
        self._told.append(self._thread.submit(tell))

    def finish(self) -> None:
        """Wait until all are told. Raises what waiting for a norm raised."""
        for future in self._told:
            future.result()
        self._told.clear()
