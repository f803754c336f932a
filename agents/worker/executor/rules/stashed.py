"""PipeDream: every micro-batch goes backward with the weights that it went forward with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agents.worker.executor.rules.rhythm import Rhythm
from agents.worker.executor.rules.update import Update
from agents.worker.executor.rules.versions import Version, move, standing, version_of


class Stashed(Rhythm):
    """Keeps for each micro-batch in flight the version of its forward (Narayanan et al., arXiv 1806.03377).

    Forwards take the latest weights of their stage, whatever other stages have (no vertical synchronisation). The
    gradient is consistent, and as many updates late as the drift.
    """

    def __init__(self, update: Update, every: int, in_flight: int) -> None:
        super().__init__(update, every, in_flight)
        self._stash: dict[int, Version] = {}

    @contextmanager
    def forward_weights(self, micro_batch: int) -> Iterator[None]:
        """The latest, which are kept for the backward."""
        self.counted.forward(micro_batch)
        self._stash[micro_batch] = version_of(self.update.parameters)
        yield

    @contextmanager
    def backward_weights(self, micro_batch: int) -> Iterator[None]:
        """Those of the forward."""
        self.counted.backward(micro_batch)
        with standing(self.update.parameters, self._stash[micro_batch]):
            yield

    def after_backward(self, micro_batch: int) -> None:
        """Drop what was kept for this micro-batch, and update if it was the last of `every`."""
        del self._stash[micro_batch]
        super().after_backward(micro_batch)

    def _update(self) -> None:
        if self._stash:
            move(self.update.parameters, [weight.clone() for weight in version_of(self.update.parameters)])
        super()._update()
