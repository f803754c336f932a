"""Small tensors that all ranks of a pipeline have for the one that reports, beside training: nobody stands still."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from agents.worker.gang import Gang


class Asides:
    """From each other rank to the one that tells, in the order in which they are sent. Of replicas the first tells."""

    def __init__(self, gang: Gang, teller: int, tag: int, numbers: int) -> None:
        """Of so many numbers each; `teller` is a rank of the pipeline, `tag` theirs alone among its messages."""
        self._pipeline, self._teller, self._tag, self._numbers = gang.pipeline, teller, tag, numbers
        self._is_told = gang.place.data_rank == 0
        self.tells = self._is_told and gang.pipeline.rank() == teller
        self._sent: _Message | None = None

    def receive(self) -> Callable[[], Sequence[Tensor]]:
        """On the rank that tells: begin to receive the next of every other rank. What waits for all of them."""
        coming = []
        for rank in range(self._pipeline.size()):
            if rank != self._teller:
                part = torch.zeros(self._numbers)
                work = dist.irecv(part, group=self._pipeline, group_src=rank, tag=self._tag)
                coming.append(_Message(work, part))
        return lambda: [message.settle() for message in coming]

    def send(self, part: Tensor) -> None:
        """On any other rank: begin to send, once the one before is gone."""
        if not self._is_told:
            return
        if self._sent is not None:
            self._sent.settle()
        work = dist.isend(part, group=self._pipeline, group_dst=self._teller, tag=self._tag)
        self._sent = _Message(work, part)


@dataclass(frozen=True, slots=True)
class _Message:
    work: dist.Work | None
    tensor: Tensor

    def settle(self) -> Tensor:
        """What it is, once it has been sent or has come."""
        if self.work is not None:
            self.work.wait()
        return self.tensor
