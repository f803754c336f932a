"""The norm of a step's gradients over all stages, and clipping by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

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
        self._teller, self._tells = teller, gang.pipeline.rank() == teller
        self._parts: list[_Message] = []
        self._own = torch.zeros(1)
        self._sent: _Message | None = None

    def begin(self) -> None:
        """Before the step's first computation: wait for the parts of the others, without standing still."""
        if not self._tells or self._most is not None:
            return
        for rank in range(self._pipeline.size()):
            if rank != self._teller:
                part = torch.zeros(1)
                work = dist.irecv(part, group=self._pipeline, group_src=rank, tag=NORM_TAG)
                self._parts.append(_Message(work, part))

    def measure(self) -> None:
        """Between the last backward and the update, by every rank of the pipeline."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        self._own = get_total_norm(gradients).square().reshape(1).cpu()
        if self._most is not None:
            dist.all_reduce(self._own, group=self._pipeline)
            clip_grads_with_norm_(self._parameters, self._most, self._own.sqrt().squeeze())
        elif not self._tells:
            if self._sent is not None:
                self._sent.settle()
            work = dist.isend(self._own, group=self._pipeline, group_dst=self._teller, tag=NORM_TAG)
            self._sent = _Message(work, self._own)

    def last(self) -> Callable[[], float]:
        """What waits for the norm of the step that was measured last, before any clipping; asked of the teller."""
        own, parts, self._parts = self._own, self._parts, []
        return lambda: math.sqrt(own.item() + sum(part.settle().item() for part in parts))


@dataclass(frozen=True, slots=True)
class _Message:
    work: dist.Work | None
    tensor: Tensor

    def settle(self) -> Tensor:
        """What it is, once it has been sent or has come."""
        if self.work is not None:
            self.work.wait()
        return self.tensor
