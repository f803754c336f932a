"""The norm of a step's gradients over all stages, and clipping by it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from agents.worker.gang import Gang


class GradientNorm:
    """The Euclidean norm of all gradients of the model, each the mean over micro-batches and replicas.

    The stages add up their parts while each goes on; only clipping waits for the sum, a round trip over the pipeline.
    """

    def __init__(self, gang: Gang, parameters: Sequence[nn.Parameter], most: float | None) -> None:
        """`parameters` are those of this rank. With `most` gradients are scaled down to that norm where it is more."""
        self._gang, self._parameters, self._most = gang, parameters, most
        self._sum = torch.zeros(1, device=gang.device)
        self._work: dist.Work | None = None

    def measure(self) -> None:
        """Between the last backward and the step, by every rank of the pipeline."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        self._settle()
        self._sum = get_total_norm(gradients).square().reshape(1).to(self._gang.device)
        self._work = dist.all_reduce(self._sum, group=self._gang.pipeline, async_op=True)
        if self._most is not None:
            self._settle()
            clip_grads_with_norm_(self._parameters, self._most, self._sum.sqrt().squeeze())

    def value(self) -> float:
        """Of the last step, before any clipping. Waits for the other stages."""
        self._settle()
        return float(self._sum.sqrt().item())

    def _settle(self) -> None:
        if self._work is not None:
            self._work.wait()
            self._work = None
