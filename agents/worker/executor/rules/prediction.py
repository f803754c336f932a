"""What the weights will be some updates on, if the optimizer goes on as it does now.

Guan et al., PipeOptim, arXiv 2312.00839: Ŵ = W − lr · s · ΔW with the ΔW of the optimizer in use. Decoupled weight
decay is followed as well, since it is known exactly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from agents.worker.muon import MOMENTUM_BUFFER, Muon, direction


def predict(optimizer: torch.optim.Optimizer, steps: int, summed: int = 1) -> None:
    """Change the weights, in place and unseen by autograd, to what they will be after that many more steps.

    `summed` is how many gradients `parameter.grad` is the sum of. Weights that were never updated stay as they are.
    A gradient that does not change is followed exactly by SGD and AdamW, and by SGD with momentum once its buffer has
    settled. Raises NotImplementedError for other optimizers than SGD, Adam, AdamW and Muon.
    """
    for group in optimizer.param_groups:
        kept = 1.0 - group["lr"] * _decoupled_decay(optimizer, group)
        decayed = kept**steps
        travelled = group["lr"] * sum(kept**step for step in range(steps))
        for parameter in group["params"]:
            delta = _delta(optimizer, group, parameter, summed)
            if delta is not None:
                parameter.data.mul_(decayed).sub_(delta, alpha=travelled)


def _decoupled_decay(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> float:
    return float(group["weight_decay"]) if isinstance(optimizer, torch.optim.AdamW | Muon) else 0.0


def _delta(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], parameter: nn.Parameter, summed: int
) -> Tensor | None:
    """ΔW, what a learning rate of 1 would subtract next."""
    state = optimizer.state.get(parameter, {})
    gradient = parameter.grad
    match optimizer:
        case torch.optim.SGD():
            return None if gradient is None else _sgd(group, state, gradient / summed, parameter.data)
        case Muon() if optimizer.orthogonalises(parameter):
            if gradient is None or MOMENTUM_BUFFER not in state:
                return None
            return direction(state[MOMENTUM_BUFFER], gradient / summed)
        case torch.optim.Adam() | Muon():  # AdamW is an Adam
            return _adam(group, state) if state else None
        case _:
            raise NotImplementedError(
                f"weight prediction knows SGD, Adam, AdamW and Muon, not {type(optimizer).__name__}"
            )


def _sgd(group: dict[str, Any], state: dict[str, Any], gradient: Tensor, weight: Tensor) -> Tensor:
    gradient = gradient + group["weight_decay"] * weight
    buffer = state.get("momentum_buffer")
    if buffer is None:
        return gradient
    return group["momentum"] * buffer + (1 - group["dampening"]) * gradient  # type: ignore[no-any-return]


def _adam(group: dict[str, Any], state: dict[str, Any]) -> Tensor:
    """m̂ / (√v̂ + ε), of the moments as they are."""
    beta1, beta2 = group["betas"]
    step = float(state["step"])
    mean = state["exp_avg"] / (1 - beta1**step)
    square = state["exp_avg_sq"] / (1 - beta2**step)
    return mean / (square.sqrt() + group["eps"])  # type: ignore[no-any-return]
