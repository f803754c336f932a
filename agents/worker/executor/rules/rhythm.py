"""What the rules share that update within an iteration: an update after every few backwards, and its drift."""

from __future__ import annotations

from agents.worker.executor.rules.drift import Drift, DriftError, drift_bound
from agents.worker.executor.rules.update import Update


class Rhythm:
    """Updates after every `every` backwards of a stage that has at most `in_flight` micro-batches under way.

    A rule says with which weights to go forward and backward, and `_update` how to change them.
    """

    def __init__(self, update: Update, every: int, in_flight: int) -> None:
        self.update = update
        self.every = every
        self.counted = Drift(drift_bound(in_flight, every))
        self.pending = 0
        """Backwards since the last update."""

    @property
    def drift(self) -> int:
        """The most updates so far between the forward and the backward of one micro-batch."""
        return self.counted.most

    def after_backward(self, micro_batch: int) -> None:
        """Count it, and update if it was the last of `every`."""
        self.counted.ended(micro_batch)
        self.pending += 1
        if self.pending == self.every:
            self._update()
            self.pending = 0
            self.counted.updates += 1

    def mean_gradients(self) -> None:
        """Each update has taken its own."""

    def emptied(self) -> None:
        """Raises DriftError where gradients are left, which no update would have had."""
        if self.pending or self.counted.in_flight:
            raise DriftError(
                f"the pipeline is empty with {self.pending} gradients that no update has had and "
                f"{self.counted.in_flight} micro-batches in flight: the micro-batches of an iteration must be a "
                f"multiple of update_every {self.every}, and all of them go backward"
            )

    def _update(self) -> None:
        self.update.apply(self.every)
        self.update.clear()
