"""The two ends of a coded boundary: what leaves a region is r numbers a token instead of d.

MAPL (arXiv 2606.05484), for a boundary with projector A ∈ St(d, r), anchors E ∈ ℝ^{V×r} on each side, trained, and
their bases P ∈ ℝ^{r×d}, random with orthonormal rows and fixed:

    sender    Z = (X − E_snd[ids]·P_snd)·A          [b, s, d] -> [b, s, r]
    receiver  X̂ = Z·Aᵀ + E_rcv[ids]·P_rcv           [b, s, r] -> [b, s, d]

The ids of the tokens travel with Z, and dL/dZ comes back. The sender owns A; the receiver works with a copy.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.protocol import WorkerModel
from agents.worker.codec.stiefel import orthonormal
from agents.worker.randomness import generator_for


class Anchors(nn.Module):
    """E[ids]·P: what one side adds or takes away for the token alone, so that it need not be sent. Zero at first."""

    basis: Tensor

    def __init__(self, model: WorkerModel, rank: int, seed: int, side: str) -> None:
        super().__init__()
        self.coordinates = nn.Parameter(torch.zeros(model.vocab, rank))
        basis = orthonormal(model.hidden, rank, generator_for(seed, "codec", "anchors", side)).T
        self.register_buffer("basis", basis.contiguous(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.coordinates) @ self.basis


class Sender(nn.Module):
    """Projects what leaves the stage behind `layer`. The result has the dtype of the stream."""

    side: ClassVar[str] = "sender"

    def __init__(self, model: WorkerModel, rank: int, seed: int, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.projector = nn.Parameter(initial_projector(model, rank, seed, layer))
        self.anchors = Anchors(model, rank, seed, self.side)

    def forward(self, stream: Tensor, ids: Tensor) -> Tensor:
        projected: Tensor = (stream - self.anchors(ids)) @ self.projector
        return projected.to(stream.dtype)


class Receiver(nn.Module):
    """Lifts what left the stage behind `layer` back to the width of the stream."""

    side: ClassVar[str] = "receiver"

    def __init__(self, model: WorkerModel, rank: int, seed: int, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.projector = nn.Parameter(initial_projector(model, rank, seed, layer))
        self.anchors = Anchors(model, rank, seed, self.side)

    def forward(self, projected: Tensor, ids: Tensor) -> Tensor:
        stream: Tensor = projected @ self.projector.T + self.anchors(ids)
        return stream.to(projected.dtype)


def initial_projector(model: WorkerModel, rank: int, seed: int, layer: int) -> Tensor:
    """A of the boundary after `layer` before training: both ends draw the same."""
    return orthonormal(model.hidden, rank, generator_for(seed, "codec", "projector", layer))
