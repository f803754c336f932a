"""Optimizers over the layers of a stage, with a state that can be taken out and put back layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from agents.worker.executor.rules.feedback import LAST_UPDATE
from agents.worker.muon import MOMENTUM_BUFFER, Muon

BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.1
ADAM_MOMENTS = ("exp_avg", "exp_avg_sq")
MUON_MOMENTS = (MOMENTUM_BUFFER,)


def make_optimizer(module: nn.Module, learning_rate: float) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019, 1711.05101). Norm weights are vectors and do not decay."""
    matrices = [parameter for parameter in module.parameters() if parameter.dim() >= 2]
    vectors = [parameter for parameter in module.parameters() if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=BETAS, fused=True)


def make_muon(layers: Iterable[tuple[str, nn.Module]], learning_rate: float) -> Muon:
    """Muon over the matrices of named layers; AdamW as in `make_optimizer` over embedding, head and norms."""
    hidden: list[nn.Parameter] = []
    tables: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for name, layer in layers:
        for parameter in layer.parameters():
            if parameter.dim() < 2:
                vectors.append(parameter)
            else:
                (tables if name in ("embedding", "head") else hidden).append(parameter)
    others = [{"params": tables, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    return Muon(hidden, others, learning_rate, WEIGHT_DECAY, BETAS)


def layer_tensors(optimizer: torch.optim.Optimizer, layer: nn.Module) -> dict[str, Tensor]:
    """A layer's weights by their names, and the moments of each as `<name>.exp_avg`, `<name>.exp_avg_sq` and so on.

    What error feedback remembers stands beside them as `<name>.last_update`.
    """
    tensors: dict[str, Tensor] = {}
    for name, parameter in layer.named_parameters():
        tensors[name] = parameter
        state = optimizer.state[parameter]
        for moment in _moments(optimizer, parameter):
            tensors[f"{name}.{moment}"] = state[moment]
        if LAST_UPDATE in state:
            tensors[f"{name}.{LAST_UPDATE}"] = state[LAST_UPDATE]
    return tensors


def restore_layer(
    optimizer: torch.optim.Optimizer, layer: nn.Module, tensors: Mapping[str, Tensor], updates: int
) -> None:
    """Put back what `layer_tensors` gave after that many updates.

    Raises KeyError for a name that is missing and ValueError for one of another shape.
    """
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(_shaped(tensors[name], parameter, name))
            state: dict[str, Tensor] = {"step": torch.tensor(float(updates), device=parameter.device)}
            remembered = (LAST_UPDATE,) if f"{name}.{LAST_UPDATE}" in tensors else ()
            for moment in (*_moments(optimizer, parameter), *remembered):
                value = _shaped(tensors[f"{name}.{moment}"], parameter, name)
                state[moment] = value.to(device=parameter.device, dtype=parameter.dtype)
            optimizer.state[parameter] = state


def state_bytes(optimizer: torch.optim.Optimizer, module: nn.Module) -> int:
    """What an optimizer keeps of a module's parameters, once it has taken a step."""
    return sum(
        len(_moments(optimizer, parameter)) * parameter.numel() * parameter.element_size()
        for parameter in module.parameters()
    )


def _moments(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> tuple[str, ...]:
    """What an optimizer keeps of a parameter from step to step."""
    by_muon = isinstance(optimizer, Muon) and optimizer.orthogonalises(parameter)
    return MUON_MOMENTS if by_muon else ADAM_MOMENTS


def _shaped(tensor: Tensor, parameter: Tensor, name: str) -> Tensor:
    if tensor.shape != parameter.shape:
        raise ValueError(f"{name} has shape {list(tensor.shape)}, the model's is {list(parameter.shape)}")
    return tensor
