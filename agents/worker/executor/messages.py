"""What passes between ranks: activations and gradients that arrive in any order, each with its micro-batch's number.

Every pair of neighbouring stages has a channel each way, with a tag of its own. A message is the tensor's bytes and
the number behind them, so that a rank may send in whatever order it computes, and one message is all it takes. Each
channel keeps receives posted ahead, as many as the sender may have sent without an answer: gloo sends at once what
the other side already waits for, and otherwise asks first, which costs a round trip.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributed import ProcessGroup, Work

from agents.worker.executor.rank_plan import RankPlan

ALIGNMENT_BYTES = 8
"""Of each part of a message; the number of the micro-batch takes as many."""


Tensors = tuple[Tensor, ...]


class Arrival(NamedTuple):
    """Tensors for `stage`: its input, or the gradients of its output."""

    stage: int
    is_gradient: bool
    micro_batch: int
    tensors: Tensors


@dataclass(frozen=True, slots=True)
class Channel:
    """What comes to `stage` from the rank of a neighbouring stage: its inputs, or the gradients of its outputs."""

    stage: int
    is_gradient: bool
    source_rank: int
    ahead: int
    """How many receives it keeps posted."""


class Packing:
    """The form of a message: tensors like `examples`, and behind them the number of their micro-batch."""

    def __init__(self, examples: Sequence[Tensor]) -> None:
        self._examples = tuple(examples)
        self._begin, end = [], 0
        for example in examples:
            self._begin.append(end)
            end = _aligned(end + example.numel() * example.element_size())
        self._bytes = end + ALIGNMENT_BYTES

    def empty(self) -> Tensor:
        """Room for a message, in the host's memory."""
        return torch.empty(self._bytes, dtype=torch.uint8)

    def pack(self, micro_batch: int, tensors: Sequence[Tensor]) -> Tensor:
        """A message that holds copies of the tensors."""
        message = self.empty()
        for place, tensor in zip(self._places(message), tensors, strict=True):
            place.copy_(tensor)
        message[-ALIGNMENT_BYTES:].view(torch.int64).fill_(micro_batch)
        return message

    def unpack(self, message: Tensor) -> tuple[int, Tensors]:
        """The micro-batch and the tensors, which stay in the message's memory where their device is the host."""
        micro_batch = int(message[-ALIGNMENT_BYTES:].view(torch.int64).item())
        places = zip(self._examples, self._places(message), strict=True)
        return micro_batch, tuple(place.to(example.device) for example, place in places)

    def _places(self, message: Tensor) -> Iterator[Tensor]:
        for example, begin in zip(self._examples, self._begin, strict=True):
            end = begin + example.numel() * example.element_size()
            yield message[begin:end].view(example.dtype).view(example.shape)


def _aligned(count: int) -> int:
    """`count` rounded up, so that every tensor of a message begins where any type may."""
    return -(-count // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class Messages:
    """The messages of one rank over gloo, from an empty pipeline to an empty pipeline."""

    def __init__(self, group: ProcessGroup, plan: RankPlan, given: Mapping[int, Tensors]) -> None:
        """`group` is the pipeline with ranks as in the plan.

        `given` are tensors like those that a stage gives to the next, for the stages of this rank and those before
        them. Back come the gradients of the ones that ask for it.
        """
        self._group, self._plan = group, plan
        self._forward = {stage: Packing(tensors) for stage, tensors in given.items()}
        self._back = {
            stage: Packing([tensor for tensor in tensors if tensor.requires_grad])
            for stage, tensors in given.items()
        }
        self._channels = tuple(_channels(plan))
        self._arrived: SimpleQueue[Arrival | Exception] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._sent: SimpleQueue[tuple[Work, Tensor] | None] = SimpleQueue()
        self._told = threading.Condition()
        self._expected, self._all_told = 0, True

    def begin(self) -> None:
        """Start to receive, first the messages of one iteration."""
        self._expected, self._all_told = self._plan.micro_batches, False
        receivers = [
            threading.Thread(target=self._receive, args=(channel,), daemon=True) for channel in self._channels
        ]
        self._threads = [threading.Thread(target=self._let_go_of_sent, daemon=True), *receivers]
        for thread in self._threads:
            thread.start()

    def extend(self) -> None:
        """Those of another iteration come as well."""
        with self._told:
            self._expected += self._plan.micro_batches
            self._told.notify_all()

    def close(self) -> None:
        """No others come."""
        with self._told:
            self._all_told = True
            self._told.notify_all()

    def arrived(self, wait: bool) -> list[Arrival]:
        """What has come since the last call; with `wait`, something at least.

        Raises what a receive raised: RuntimeError when the other side is gone, or silent for too long.
        """
        found: list[Arrival] = []
        while True:
            try:
                item = self._arrived.get(block=wait and not found)
            except Empty:
                return found
            if isinstance(item, Exception):
                raise item
            found.append(item)

    def send_forward(self, stage: int, micro_batch: int, outputs: Tensors) -> None:
        """Send the output of `stage` to the stage behind it. Never waits."""
        self._send(stage + 1, False, self._forward[stage].pack(micro_batch, outputs))

    def send_backward(self, stage: int, micro_batch: int, gradients: Tensors) -> None:
        """Send the gradients of the input of `stage` to the stage before it. Never waits."""
        self._send(stage - 1, True, self._back[stage - 1].pack(micro_batch, gradients))

    def end(self) -> None:
        """Once closed: wait until everything has been sent. Raises RuntimeError when the other side is gone."""
        self._sent.put(None)
        for thread in self._threads:
            thread.join()
        self.arrived(wait=False)

    def _send(self, stage: int, is_gradient: bool, message: Tensor) -> None:
        work = self._group.send([message], self._plan.stage_ranks[stage], _tag(stage, is_gradient))
        self._sent.put((work, message))

    def _let_go_of_sent(self) -> None:
        """Keep each message until it has been sent, and no longer."""
        try:
            while (sent := self._sent.get()) is not None:
                sent[0].wait()
        except RuntimeError as error:
            self._arrived.put(error)

    def _receive(self, channel: Channel) -> None:
        """Receive what comes over one channel, in whatever order of micro-batches."""
        packing = self._back[channel.stage] if channel.is_gradient else self._forward[channel.stage - 1]
        tag = _tag(channel.stage, channel.is_gradient)
        posted: deque[tuple[Work, Tensor]] = deque()
        received = 0
        try:
            while True:
                for _ in range(self._to_post(channel, received, len(posted))):
                    message = packing.empty()
                    posted.append((self._group.recv([message], channel.source_rank, tag), message))
                if not posted:
                    return
                work, message = posted.popleft()
                work.wait()
                received += 1
                self._arrived.put(Arrival(channel.stage, channel.is_gradient, *packing.unpack(message)))
        except RuntimeError as error:
            self._arrived.put(error)

    def _to_post(self, channel: Channel, received: int, posted: int) -> int:
        """How many more receives; waits for one, or for the end, where none is posted."""
        with self._told:
            self._told.wait_for(lambda: posted or self._all_told or received < self._expected)
            return min(channel.ahead - posted, self._expected - received - posted)


def _channels(plan: RankPlan) -> list[Channel]:
    """All that comes to a rank. What a stage has sent without an answer is in flight on it, so at most its cap."""
    found = []
    for stage in plan.stages:
        for neighbour, is_gradient, cap in (
            (stage - 1, False, plan.caps[stage - 1]),
            (stage + 1, True, plan.caps[stage]),
        ):
            if 0 <= neighbour <= plan.last_stage and not plan.has(neighbour):
                found.append(Channel(stage, is_gradient, plan.stage_ranks[neighbour], cap))
    return found


def _tag(stage: int, is_gradient: bool) -> int:
    """One tag for each stage and direction; they begin above those that torch takes by itself."""
    return 1 + 2 * stage + is_gradient
