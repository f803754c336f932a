"""A decoder-only transformer: RMSNorm, rotary positions, causal grouped-query attention, SwiGLU.

Shapes: b sequences of s tokens, h hidden, n heads and g key-value heads of width d, f the width of the MLP.
The residual stream has one dtype from the embedding to the head, so that cutting the model anywhere and
sending that stream over the wire changes nothing.

Sources: Vaswani et al. 2017 (1706.03762); RMSNorm, Zhang and Sennrich 2019 (1910.07467); rotary positions, Su et
al. 2021 (2104.09864); SwiGLU, Shazeer 2020 (2002.05202); grouped queries, Ainslie et al. 2023 (2305.13245).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.protocol import WorkerModel
from agents.worker.matrix import Matrix
from agents.worker.recompute import recomputed

Recompute = Literal["none", "selective", "full"]

ROTARY_BASE = 10_000.0
NORM_EPSILON = 1e-5


class RMSNorm(nn.Module):
    """x / rms(x) × weight, computed in fp32, in the dtype of x."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x.float(), self.weight.shape, self.weight, NORM_EPSILON).to(x.dtype)


def rotary_table(seq_len: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """cos and sin of position × base^(−2i/d): two tables [s, d], each half of which is the same d/2 angles."""
    frequencies = ROTARY_BASE ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(seq_len, dtype=torch.float32), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (x_i, x_{i+d/2}) of x [b, n, s, d] by the angle of their position."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (x * cos + turned * sin).to(x.dtype)


class Attention(nn.Module):
    """Causal attention in which n / g heads share a key and a value."""

    def __init__(self, model: WorkerModel, recompute: Recompute, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = model.heads, model.kv_heads, model.head_dim
        self.query = Matrix(model.hidden, model.heads * model.head_dim, dtype)
        self.key = Matrix(model.hidden, model.kv_heads * model.head_dim, dtype)
        self.value = Matrix(model.hidden, model.kv_heads * model.head_dim, dtype)
        self.output = Matrix(model.heads * model.head_dim, model.hidden, dtype)
        self.recomputes_core = recompute == "selective"

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        query = rotate(self._by_head(self.query(x), self.heads), cos, sin)
        key = rotate(self._by_head(self.key(x), self.kv_heads), cos, sin)
        value = self._by_head(self.value(x), self.kv_heads)
        # Korthikanti et al. (2205.05198) recompute just this part: it keeps most and costs least.
        core = (
            recomputed(self._core, query, key, value)
            if self.recomputes_core
            else self._core(query, key, value)
        )
        return self.output(core.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _by_head(self, x: Tensor, heads: int) -> Tensor:
        return x.view(*x.shape[:-1], heads, self.head_dim).transpose(1, 2)

    def _core(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=self.heads != self.kv_heads
        )


class SwiGLU(nn.Module):
    """W_down (silu(W_gate x) ⊙ W_up x)."""

    def __init__(self, hidden: int, ffn: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate = Matrix(hidden, ffn, dtype)
        self.up = Matrix(hidden, ffn, dtype)
        self.down = Matrix(ffn, hidden, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class Block(nn.Module):
    """One layer: x + attention(norm(x)), then x + mlp(norm(x)). [b, s, h] -> [b, s, h].

    `dtype` is what matrices multiply in.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, model: WorkerModel, recompute: Recompute, dtype: torch.dtype) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(model.hidden)
        self.attention = Attention(model, recompute, dtype)
        self.mlp_norm = RMSNorm(model.hidden)
        self.mlp = SwiGLU(model.hidden, model.ffn, dtype)
        self.recomputes_all = recompute == "full"
        cos, sin = rotary_table(model.seq_len, model.head_dim)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return recomputed(self._layer, x) if self.recomputes_all else self._layer(x)

    def _layer(self, x: Tensor) -> Tensor:
        attended: Tensor = x + self.attention(self.attention_norm(x), self.cos, self.sin).to(x.dtype)
        return attended + self.mlp(self.mlp_norm(attended)).to(x.dtype)  # type: ignore[no-any-return]


class Embedding(nn.Module):
    """Tokens [b, s] -> the residual stream [b, s, h], in the stream's dtype."""

    def __init__(self, model: WorkerModel, stream_dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(model.vocab, model.hidden))
        self.stream_dtype = stream_dtype

    def forward(self, tokens: Tensor) -> Tensor:
        stream: Tensor = functional.embedding(tokens, self.weight).to(self.stream_dtype)
        return stream


class Head(nn.Module):
    """Final norm and projection: [b, s, h] -> logits [b, s, vocab]."""

    def __init__(self, model: WorkerModel, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = RMSNorm(model.hidden)
        self.projection = Matrix(model.hidden, model.vocab, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.projection(self.norm(x))  # type: ignore[no-any-return]


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean negative log likelihood, nats a token, of targets [b, s] under logits [b, s, vocab]."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
