"""How many updates fall between the forward and the backward of a micro-batch, counted and held to its bound."""

from __future__ import annotations


class DriftError(RuntimeError):
    """A stage ran in an order that its rule was not made for."""


def drift_bound(in_flight: int, every: int) -> int:
    """The most updates between a forward and its backward, ⌈(in_flight − 1) / every⌉.

    Between the two at most in_flight − 1 other micro-batches go backward, and every `every`-th updates. With 1F1B's
    cap of N − s this is PACI's ⌈(N − 1) / a⌉ on stage 0 (Elam et al., arXiv 2606.07881).
    """
    return -(-(in_flight - 1) // every)


class Drift:
    """Watches the micro-batches in flight on one stage."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.most = 0
        """The largest drift so far."""
        self._most_since = 0
        self.updates = 0
        self._updates_at_forward: dict[int, int] = {}

    @property
    def in_flight(self) -> int:
        """Micro-batches that are between their forward and the end of their backward."""
        return len(self._updates_at_forward)

    def forward(self, micro_batch: int) -> None:
        """A forward begins. Raises DriftError if that micro-batch is in flight already."""
        if micro_batch in self._updates_at_forward:
            raise DriftError(f"micro-batch {micro_batch} goes forward twice before its backward has ended")
        self._updates_at_forward[micro_batch] = self.updates

    def backward(self, micro_batch: int) -> None:
        """A backward begins. Raises DriftError where it drifted further than the bound, or had no forward."""
        if micro_batch not in self._updates_at_forward:
            raise DriftError(f"micro-batch {micro_batch} goes backward without a forward")
        drift = self.updates - self._updates_at_forward[micro_batch]
        if drift > self.bound:
            raise DriftError(
                f"{drift} updates between the forward and the backward of micro-batch {micro_batch}: with the "
                f"plan's cap there are at most {self.bound}, so the stage had more in flight than the cap"
            )
        self.most = max(self.most, drift)
        self._most_since = max(self._most_since, drift)

    def take_most(self) -> int:
        """The largest drift since this was asked last."""
        most, self._most_since = self._most_since, 0
        return most

    def ended(self, micro_batch: int) -> None:
        """The gradient of a micro-batch is whole."""
        del self._updates_at_forward[micro_batch]
