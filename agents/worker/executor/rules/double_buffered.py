"""PipeDream-2BW: two versions of the weights, and a gradient that is one step late on every stage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agents.worker.executor.rules.drift import DriftError
from agents.worker.executor.rules.rhythm import Rhythm
from agents.worker.executor.rules.update import Update
from agents.worker.executor.rules.versions import Version, move, standing, version_of


class DoubleBuffered(Rhythm):
    """W_{t+1} = W_t − step(∇f(W_{t−1})) (Narayanan et al., arXiv 2006.09503).

    Micro-batches come in groups of `every`. Group g goes forward and backward with the weights after g − 1 updates,
    on every stage, and then makes update g + 1 (the first two groups both use the initial weights). That takes
    `every` ≥ in_flight − 1: then a group's version is always one of the two last.
    """

    def __init__(self, update: Update, every: int, in_flight: int) -> None:
        """Raises ValueError for more in flight than two versions serve."""
        if in_flight > every + 1:
            raise ValueError(
                f"update_every is {every} with {in_flight} micro-batches in flight: double-buffered needs at least "
                f"{in_flight - 1}, or a micro-batch would need a third version of the weights"
            )
        super().__init__(update, every, in_flight)
        self._before: Version = [weight.clone() for weight in version_of(update.parameters)]
        self._earlier = 0  # micro-batches before the pipeline was empty last

    @contextmanager
    def forward_weights(self, micro_batch: int) -> Iterator[None]:
        """Those of its group."""
        self.counted.forward(micro_batch)
        with standing(self.update.parameters, self._of_group(micro_batch, "forward")):
            yield

    @contextmanager
    def backward_weights(self, micro_batch: int) -> Iterator[None]:
        """Those of its group."""
        self.counted.backward(micro_batch)
        version = self._of_group(micro_batch, "backward")
        if self._group(micro_batch) != self.counted.updates:
            raise DriftError(
                f"micro-batch {micro_batch} goes backward before the group of {self.every} before its own has "
                "ended: with two versions, groups go backward one after the other"
            )
        with standing(self.update.parameters, version):
            yield

    def emptied(self) -> None:
        """Micro-batches are numbered from 0 again, groups go on."""
        super().emptied()
        self._earlier = self.counted.updates * self.every

    def _group(self, micro_batch: int) -> int:
        return (self._earlier + micro_batch) // self.every

    def _of_group(self, micro_batch: int, what: str) -> Version:
        wanted, latest = max(0, self._group(micro_batch) - 1), self.counted.updates
        if wanted == latest:
            return version_of(self.update.parameters)
        if wanted == latest - 1:
            return self._before
        raise DriftError(
            f"the {what} of micro-batch {micro_batch} needs the weights after {wanted} updates, and only those "
            f"after {max(0, latest - 1)} and {latest} are there: in flight may be at most update_every + 1"
        )

    def _update(self) -> None:
        # No micro-batch in flight uses the older version any more: its tensors take the next one.
        parameters, latest = self.update.parameters, version_of(self.update.parameters)
        for spare, weight in zip(self._before, latest, strict=True):
            spare.copy_(weight)
        move(parameters, self._before)
        self._before = latest
        super()._update()
