"""AdamW over the layers of a stage, with a state that can be taken out and put back layer by layer."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from agents.worker.stage import StageModule

BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.1
MOMENTS = ("exp_avg", "exp_avg_sq")


def make_optimizer(module: StageModule, learning_rate: float) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019, 1711.05101). Norm weights are vectors and do not decay."""
    matrices = [parameter for parameter in module.parameters() if parameter.dim() >= 2]
    vectors = [parameter for parameter in module.parameters() if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=BETAS, fused=True)


def layer_tensors(optimizer: torch.optim.AdamW, layer: nn.Module) -> dict[str, Tensor]:
    """A layer's weights by their names, and the moments of each as `<name>.exp_avg` and `<name>.exp_avg_sq`."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in layer.named_parameters():
        tensors[name] = parameter
        for moment in MOMENTS:
            tensors[f"{name}.{moment}"] = optimizer.state[parameter][moment]
    return tensors


def restore_layer(
    optimizer: torch.optim.AdamW, layer: nn.Module, tensors: Mapping[str, Tensor], step: int
) -> None:
    """Put back what `layer_tensors` gave after `step` steps.

    Raises KeyError for a name that is missing and ValueError for one of another shape.
    """
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(_shaped(tensors[name], parameter, name))
            state: dict[str, Tensor] = {"step": torch.tensor(float(step), device=parameter.device)}
            for moment in MOMENTS:
                value = _shaped(tensors[f"{name}.{moment}"], parameter, name)
                state[moment] = value.to(device=parameter.device, dtype=parameter.dtype)
            optimizer.state[parameter] = state


def _shaped(tensor: Tensor, parameter: Tensor, name: str) -> Tensor:
    if tensor.shape != parameter.shape:
        raise ValueError(f"{name} has shape {list(tensor.shape)}, the model's is {list(parameter.shape)}")
    return tensor
