"""The intermediate representation of a pipeline plan: what stands where, and who does what in which order.

Stages form chains: a micro-batch enters at a stage without an incoming edge and leaves at one without an outgoing
edge. One chain is the rule; a bidirectional pipeline (Chimera) has one chain a direction, and each micro-batch goes
through one of them. A rank is a worker; several stages may stand on one rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from scheduler.errors import InvalidValueError


class Op(StrEnum):
    """What a rank does; the values are torch.distributed.pipelining's letters.

    A backward is whole (B), or split into the gradient of the stage's input (I), which the stage before waits for,
    and that of its weights (W), which nobody does (Qi et al., arXiv 2401.10241).
    """

    FORWARD = "F"
    BACKWARD = "B"
    INPUT_GRADIENT = "I"
    WEIGHT_GRADIENT = "W"
    SEND_FORWARD = "SEND_F"
    RECEIVE_FORWARD = "RECV_F"
    SEND_BACKWARD = "SEND_B"
    RECEIVE_BACKWARD = "RECV_B"

    # An enum hashes its name in Python; a plan looks up tens of thousands of actions.
    __hash__ = str.__hash__

    @property
    def computes(self) -> bool:
        """Whether it is work of the rank itself, and not a message."""
        return self in _COMPUTING

    @property
    def passes_gradient_back(self) -> bool:
        """Whether the stage before waits for what comes of it."""
        return self is Op.BACKWARD or self is Op.INPUT_GRADIENT


_COMPUTING = frozenset((Op.FORWARD, Op.BACKWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT))


class StageAction(NamedTuple):
    """One step of a rank: an operation of one stage on one micro-batch (from 0)."""

    stage: int
    op: Op
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.op}{self.micro_batch}"


Actions = tuple[StageAction, ...]

Order = tuple[Actions, ...]
"""For each rank its actions, in the order in which it runs them."""


@dataclass(frozen=True, slots=True)
class StageCost:
    """What a stage takes: seconds for one micro-batch, bytes of one GPU.

    `weight_bytes` is held throughout, `version_bytes` once more for each further version of the weights that the
    weight rule keeps. A micro-batch holds `inflight_bytes` from the start of its forward to the end of its backward;
    of a split backward, to the end of I, and `pending_bytes` from there to the end of W.
    """

    forward_s: float
    input_gradient_s: float
    weight_gradient_s: float
    weight_bytes: float = 0.0
    version_bytes: float = 0.0
    inflight_bytes: float = 0.0
    pending_bytes: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise InvalidValueError(name, value, "a finite number of 0 or more")

    @property
    def backward_s(self) -> float:
        """Of a backward that is not split."""
        return self.input_gradient_s + self.weight_gradient_s

    def seconds(self, op: Op) -> float:
        """How long the rank computes."""
        match op:
            case Op.FORWARD:
                return self.forward_s
            case Op.BACKWARD:
                return self.backward_s
            case Op.INPUT_GRADIENT:
                return self.input_gradient_s
            case Op.WEIGHT_GRADIENT:
                return self.weight_gradient_s
            case _:
                return 0.0

    def chunk(self, parts: int) -> StageCost:
        """One of `parts` equal stages that this one is cut into."""
        return StageCost(*(getattr(self, name) / parts for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Worker:
    """Where the stages of a rank stand: a region and the usable memory of one of its GPUs, bytes."""

    region: str
    memory_bytes: float = math.inf


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage on its rank."""

    rank: int
    cost: StageCost


@dataclass(frozen=True, slots=True)
class LowRank:
    """A codec that sends the last dimension of a tensor projected to `rank` numbers."""

    rank: int


@dataclass(frozen=True, slots=True)
class Edge:
    """What two stages exchange for a micro-batch: an activation there, its gradient back, of the same shape."""

    source: int
    target: int
    shape: tuple[int, ...]
    element_bytes: int
    codec: LowRank | None = None

    def __post_init__(self) -> None:
        if not self.shape or min(self.shape) < 1:
            raise InvalidValueError("edge.shape", self.shape, "at least one dimension, each of 1 or more")
        if self.codec is not None and not 1 <= self.codec.rank <= self.shape[-1]:
            raise InvalidValueError("edge.codec.rank", self.codec.rank, f"from 1 to {self.shape[-1]}")

    @property
    def wire_bytes(self) -> int:
        """Bytes of one message."""
        last = self.shape[-1] if self.codec is None else self.codec.rank
        return math.prod(self.shape[:-1]) * last * self.element_bytes


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two regions. Every message from one to the other shares it, first come first served."""

    source: str
    target: str
    latency_s: float
    bandwidth_bps: float

    def __post_init__(self) -> None:
        if not 0 <= self.latency_s < math.inf:
            raise InvalidValueError("link.latency_s", self.latency_s, "a finite number of 0 or more")
        if not self.bandwidth_bps > 0:
            raise InvalidValueError("link.bandwidth_bps", self.bandwidth_bps, "more than 0")

    def transfer_s(self, wire_bytes: int) -> float:
        """How long a message occupies the link."""
        return wire_bytes * 8 / self.bandwidth_bps


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages on their workers, their edges, and the links between regions; inside a region messages are free."""

    workers: tuple[Worker, ...]
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]
    links: tuple[Link, ...]

    @property
    def following(self) -> tuple[int | None, ...]:
        """For each stage the one that its activations go to; none after the last of a chain."""
        targets = {edge.source: edge.target for edge in self.edges}
        return tuple(targets.get(stage) for stage in range(len(self.stages)))

    @property
    def preceding(self) -> tuple[int | None, ...]:
        """For each stage the one that its gradients go to; none before the first of a chain."""
        sources = {edge.target: edge.source for edge in self.edges}
        return tuple(sources.get(stage) for stage in range(len(self.stages)))

    def link(self, source_rank: int, target_rank: int) -> Link | None:
        """What a message between two ranks goes over; none inside a region.

        Raises InvalidValueError where two regions have no link.
        """
        source, target = self.workers[source_rank].region, self.workers[target_rank].region
        if source == target:
            return None
        for link in self.links:
            if link.source == source and link.target == target:
                return link
        raise InvalidValueError("links", (source, target), "a link for every pair of regions with an edge")


class WeightRule(StrEnum):
    """Which weights a backward uses, and when they change."""

    FLUSH = "flush"
    """One version; the step comes after the last backward of the iteration."""
    CURRENT = "current"
    """Whatever is there at the backward (PACI, arXiv 2606.07881)."""
    PREDICTED = "predicted"
    """Forward with what the weights will be (PipeOptim, arXiv 2312.00839)."""
    DOUBLE_BUFFERED = "double-buffered"
    """Those of its forward, at most one step old (PipeDream-2BW, arXiv 2006.09503)."""
    STASHED = "stashed"
    """Those of its forward, one version for each micro-batch in flight (PipeDream, arXiv 1806.03377)."""

    def versions(self, in_flight: int) -> int:
        """How many versions of the weights a stage holds."""
        match self:
            case WeightRule.STASHED:
                return in_flight
            case WeightRule.DOUBLE_BUFFERED | WeightRule.PREDICTED:
                return 2
            case _:
                return 1


class Binding(StrEnum):
    """Whether a rank keeps to its order, or takes whatever is ready first in it."""

    STRICT = "strict"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Plan:
    """One iteration. `actions` has the messages as well; `caps` is per stage the most micro-batches in flight.

    Made by `passes.plan_of`, which checks it.
    """

    pipeline: Pipeline
    actions: Order
    caps: tuple[int, ...]
    weight_rule: WeightRule
    binding: Binding
