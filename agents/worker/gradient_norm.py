"""The norm of a step's gradients over all stages, and clipping by it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from agents.worker.gang import Gang

NORM_TAG = 1 << 20
"""Above those of all other messages between stages."""


class GradientNorm:
    """The Euclidean norm of all gradients of the model, each the mean over micro-batches and replicas.

    Only the rank that tells it needs it, so each other one sends its part there, in one message that is waited for
    before the step: it is there before anything of the next step can be, and holds up nobody. Clipping needs it
    everywhere: then all ranks wait for the sum, some round trips over the pipeline. On the host in either case.
    """

    def __init__(
        self, gang: Gang, teller: int, parameters: Sequence[nn.Parameter], most: float | None
    ) -> None:
        """`parameters` are those of this rank, `teller` the rank of the pipeline whose `value` is asked for.

        With `most` gradients are scaled down to that norm where it is more.
        """
        self._pipeline, self._parameters, self._most = gang.pipeline, parameters, most
        self._teller, self._tells = teller, gang.pipeline.rank() == teller
        self._parts: list[tuple[dist.Work | None, Tensor]] = []
        self._sum = torch.zeros(1)
        self._sent: tuple[dist.Work | None, Tensor] | None = None

    def begin(self) -> None:
        """Before the step's first computation: wait for the parts of the others, without standing still."""
        if not self._tells or self._most is not None:
            return
        for rank in range(self._pipeline.size()):
            if rank != self._teller:
                part = torch.zeros(1)
                self._parts.append(
                    (dist.irecv(part, group=self._pipeline, group_src=rank, tag=NORM_TAG), part)
                )

    def measure(self) -> None:
        """Between the last backward and the update, by every rank of the pipeline."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        self._sum = get_total_norm(gradients).square().reshape(1).cpu()
        if self._most is not None:
            dist.all_reduce(self._sum, group=self._pipeline)
            clip_grads_with_norm_(self._parameters, self._most, self._sum.sqrt().squeeze())
        elif not self._tells:
            _settle(self._sent)
            message = self._sum
            work = dist.isend(message, group=self._pipeline, group_dst=self._teller, tag=NORM_TAG)
            self._sent = (work, message)

    def value(self) -> float:
        """Of the last step, before any clipping; asked of the teller. Waits for the other stages."""
        for arriving in self._parts:
            self._sum += _settle(arriving)
        self._parts.clear()
        return float(self._sum.sqrt().item())


def _settle(message: tuple[dist.Work | None, Tensor] | None) -> Tensor:
    """What it was, once it has been sent or has come."""
    if message is None:
        return torch.zeros(1)
    work, tensor = message
    if work is not None:
        work.wait()
    return tensor
