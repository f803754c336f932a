"""How many parameters a model shape has, in all and active for one token.

Weight matrices, the two norms of a layer and the last one; biases are left out (under 0.2 % of any known model).
"""

from __future__ import annotations

from functools import lru_cache

from scheduler.errors import InvalidValueError
from scheduler.job import ModelShape


@lru_cache(maxsize=1024)
def parameter_count(model: ModelShape) -> int:
    """All parameters; a tied embedding counts once."""
    layers = sum(layer_parameters(model, layer) for layer in range(model.layers))
    return layers + _outside_layers(model)


@lru_cache(maxsize=1024)
def active_parameter_count(model: ModelShape) -> int:
    """Parameters that take part in one token: as `parameter_count`, of the experts only the active ones."""
    idle = sum(_idle_parameters(model, layer) for layer in range(model.layers))
    return parameter_count(model) - idle


def layer_parameters(model: ModelShape, layer: int) -> int:
    """All parameters of one layer, norms and every expert included. Layers count from 0."""
    return _attention(model) + _mlp(model, layer, model.experts) + 2 * model.hidden


def active_parameters_of_layer(model: ModelShape, layer: int) -> int:
    """Parameters of one layer that stand in its matrix products for one token (no norms, active experts)."""
    return _attention(model) + _mlp(model, layer, model.experts_per_token)


def _outside_layers(model: ModelShape) -> int:
    table = model.vocab * model.hidden
    positions = model.seq_len * model.hidden if model.learned_positions else 0
    return table * (1 if model.tied_embeddings else 2) + positions + model.hidden


def _attention(model: ModelShape) -> int:
    if model.attention_parameters:
        return model.attention_parameters
    return model.hidden * model.head_dim * 2 * (model.heads + model.kv_heads)


def _mlp(model: ModelShape, layer: int, experts: int) -> int:
    """Of one layer, with so many experts counted."""
    if not 0 <= layer < model.layers:
        raise InvalidValueError("layer", layer, f"0 … {model.layers - 1}")
    matrices = 3 if model.gated_mlp else 2
    if model.experts == 1:
        return matrices * model.hidden * model.ffn
    if layer < model.dense_layers:
        return matrices * model.hidden * model.dense_ffn
    router = model.hidden * model.experts
    return matrices * model.hidden * model.ffn * (experts + model.shared_experts) + router


def _idle_parameters(model: ModelShape, layer: int) -> int:
    return _mlp(model, layer, model.experts) - _mlp(model, layer, model.experts_per_token)
