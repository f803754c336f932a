"""Activations that layers keep for the backward, bytes: as published, and of the built-in worker to the byte."""

from __future__ import annotations

from scheduler.job import ModelShape, Recompute

FP32_BYTES = 4


def layer_activation_bytes(
    model: ModelShape, micro_batch: int, tensor: int, recompute: Recompute, bytes_per_element: int = 2
) -> float:
    """Activations that one layer keeps of one micro-batch, bytes a GPU (arXiv 2205.05198, Table 2).

    none: s·b·h·(10 + 24/t + 5·a·s/(h·t)); selective, with sequence parallelism: 34·s·b·h/t; full: 2·s·b·h. The
    published figures are for 2-byte elements; others in proportion.
    """
    s, h, a, t = model.seq_len, model.hidden, model.heads, tensor
    sbh = s * micro_batch * h * bytes_per_element / 2
    if recompute is Recompute.NONE:
        return sbh * (10 + 24 / t + 5 * a * s / (h * t))
    return sbh * 34 / t if recompute is Recompute.SELECTIVE else 2 * sbh


def builtin_layer_bytes(
    model: ModelShape, micro_batch: int, recompute: Recompute, bytes_per_element: int = 2
) -> float:
    """Activations that one layer of the built-in worker keeps of one micro-batch, bytes (agents/worker/model.py).

    Of a token, with h hidden, q = heads × head_dim, k = key-value heads × head_dim, f the width of the MLP and e bytes
    an element:

    - each of the two norms computes in fp32: its input 4h, that over its root mean square 4h, and 1 / the latter 4;
    - inputs of matrices: of query, key and value e·h, of gate and up e·h, of the output e·q, of down e·f;
    - what attention itself reads: rotated query and key, and value, e·(q + 2k);
    - what SwiGLU multiplies: gate, silu(gate) and up, 3·e·f;
    - none: of attention the log-sum-exp of each head too, 4 × heads. Selective computes that again.

    full: the input of the layer alone, e·h.
    """
    tokens, hidden, element = micro_batch * model.seq_len, model.hidden, bytes_per_element
    if recompute is Recompute.FULL:
        return float(tokens * element * hidden)
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    norms = 2 * FP32_BYTES * (2 * hidden + 1)
    attention = element * (hidden + queries + 2 * keys + queries)
    mlp = element * (hidden + 4 * model.ffn)
    log_sum_exp = FP32_BYTES * model.heads if recompute is Recompute.NONE else 0
    return float(tokens * (norms + attention + mlp + log_sum_exp))


def builtin_pending_bytes(
    model: ModelShape, micro_batch: int, recompute: Recompute, bytes_per_element: int = 2
) -> float:
    """What one layer of the built-in worker keeps of one micro-batch between the two parts of its backward, bytes.

    For each matrix its input and the gradient of its output, from which W is computed (agents/worker/matrix.py); with
    full recompute nothing, as I does all. Of a token, named as in `builtin_layer_bytes`, the inputs are 2h + q + f, of
    which query, key and value share one and gate and up the other h; the gradients q + 2k + 2f + 2h.
    """
    if recompute is Recompute.FULL:
        return 0.0
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    of_a_token = 4 * model.hidden + 2 * queries + 2 * keys + 3 * model.ffn
    return float(micro_batch * model.seq_len * bytes_per_element * of_a_token)


def activation_bytes(
    model: ModelShape,
    micro_batch: int,
    tensor: int,
    recompute: Recompute,
    *,
    pipeline: int = 1,
    interleave: int = 1,
) -> float:
    """Activations on the first stage of a full 1F1B pipeline, bytes a GPU (arXiv 2205.05198, section 4.2.3).

    That stage holds L/p layers of p micro-batches, as much as L layers of one; with v interleaved chunks a device
    (1 + (p−1)/(p·v)) times as much.
    """
    factor = 1 + (pipeline - 1) / (pipeline * interleave) if interleave > 1 else 1.0
    return factor * model.layers * layer_activation_bytes(model, micro_batch, tensor, recompute)
