"""PipeOptim: forward with what the weights are expected to be at the backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agents.worker.executor.rules.prediction import predict
from agents.worker.executor.rules.rhythm import Rhythm
from agents.worker.executor.rules.versions import version_of


class Predicted(Rhythm):
    """Forward with Ŵ = W − lr · s · ΔW, backward with the weights that are there then (Guan et al., 2312.00839).

    s is how many updates will fall between the two: the backwards of all that is in flight come first. In the steady
    state of 1F1B with an update a micro-batch this is D − rank − 1 of D stages; while the pipeline fills it is less.
    """

    @contextmanager
    def forward_weights(self, micro_batch: int) -> Iterator[None]:
        """The expected ones."""
        steps = (self.pending + self.counted.in_flight) // self.every
        self.counted.forward(micro_batch)
        if steps == 0:
            yield
            return
        # In place, so that what layers save for the backward is what stands there by then.
        parameters = self.update.parameters
        actual = [weight.clone() for weight in version_of(parameters)]
        predict(self.update.optimizer, steps, summed=max(1, self.pending))
        try:
            yield
        finally:
            for parameter, weight in zip(parameters, actual, strict=True):
                parameter.data.copy_(weight)

    @contextmanager
    def backward_weights(self, micro_batch: int) -> Iterator[None]:
        """The latest."""
        self.counted.backward(micro_batch)
        if self.pending == 0:
            self.update.clear()
        yield

    def _update(self) -> None:
        self.update.apply(
            self.every
        )  # its gradients stay until the next backward: a prediction may need them
