"""The norm of a step's gradients over all stages, and clipping by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from agents.worker.asides import Asides
from agents.worker.gang import Gang

NORM_TAG = 1 << 20
"""Above those of all other messages between stages."""


class GradientNorm:
    """The Euclidean norm of all gradients of the model, each the mean over micro-batches and replicas.

    Only the rank that tells it needs it, so each other one sends its part there, and nobody waits: who tells it does,
    beside the next step. Clipping needs it everywhere: then all ranks wait for the sum, some round trips over the
    pipeline. On the host in either case.
    """

    def __init__(
        self, gang: Gang, teller: int, parameters: Sequence[nn.Parameter], most: float | None
    ) -> None:
        """`parameters` are those of this rank, `teller` the rank of the pipeline that asks for `last`.

        With `most` gradients are scaled down to that norm where it is more.
        """
        self._pipeline, self._parameters, self._most = gang.pipeline, parameters, most
        self._asides = Asides(gang, teller, NORM_TAG, 1)
        self._others: Callable[[], Sequence[Tensor]] = list
        self._own = torch.zeros(1)

    def begin(self) -> None:
        """Before the step's first computation: wait for the parts of the others, without standing still."""
        if self._asides.tells and self._most is None:
            self._others = self._asides.receive()

    def measure(self) -> None:
        """Between the last backward and the update, by every rank of the pipeline."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        self._own = get_total_norm(gradients).square().reshape(1).cpu()
        if self._most is not None:
            dist.all_reduce(self._own, group=self._pipeline)
            clip_grads_with_norm_(self._parameters, self._most, self._own.sqrt().squeeze())
        elif not self._asides.tells:
            self._asides.send(self._own)

    def last(self) -> Callable[[], float]:
        """What waits for the norm of the step that was measured last, before any clipping; asked of the teller."""
        own, others = self._own, self._others
        return lambda: math.sqrt(own.item() + sum(part.item() for part in others()))
