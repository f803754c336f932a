"""One stage of the model: its layers, initialised the same wherever the model is cut."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from agents.protocol import WorkerModel, WorkerPlan
from agents.worker.left import LeftGradients
from agents.worker.matrix import Matrix
from agents.worker.model import Block, Embedding, Head
from agents.worker.randomness import generator_for

INITIAL_STD = 0.02


class StageModule(nn.Module):
    """The layers of one stage in order, by the names under which checkpoints know them.

    The first stage takes tokens [b, s], the others the residual stream [b, s, h]; the last gives logits
    [b, s, vocab], the others the stream.
    """

    def __init__(self, plan: WorkerPlan, stage: int, device: torch.device) -> None:
        super().__init__()
        stages = len(plan.layers_per_stage)
        first_layer = sum(plan.layers_per_stage[:stage])
        layers: dict[str, nn.Module] = {}
        dtype = stream_dtype(plan)
        if stage == 0:
            layers["embedding"] = Embedding(plan.model, dtype)
        for layer in range(first_layer, first_layer + plan.layers_per_stage[stage]):
            layers[layer_name(layer)] = Block(plan.model, plan.recompute, dtype)
        if stage == stages - 1:
            layers["head"] = Head(plan.model, dtype)
        for name, module in layers.items():
            _initialise(module, plan.seed, name, plan.model)
        self.layers = nn.ModuleDict(layers).to(device)
        self.device_type = device.type
        self.half_precision = plan.dtype == "bf16"

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers.values():
            x = layer(x)
        return x

    def share_copies(self, optimizer: Optimizer) -> None:
        """Let micro-batches share the bf16 copies of weights, which nothing but `optimizer` changes from now on."""
        for matrix in self.matrices:
            matrix.share_copy()
        optimizer.register_step_post_hook(lambda *_: self.forget_copies())

    def forget_copies(self) -> None:
        """The weights have changed."""
        for matrix in self.matrices:
            matrix.forget_copy()

    def leave_gradients(self) -> LeftGradients:
        """From now on backwards leave the gradients of the layers' matrices there, to be computed later.

        Not of the head's: what that is computed from are logits, which take more than several layers.
        """
        left = LeftGradients()
        for name, layer in self.named_layers():
            if name != "head":
                for matrix in _matrices_of(layer):
                    matrix.left = left
        return left

    @property
    def matrices(self) -> Iterator[Matrix]:
        """Those of all layers."""
        return _matrices_of(self)

    @property
    def shared_copies_bytes(self) -> int:
        """What the copies take that all micro-batches share; 0 where each has its own, or none."""
        return sum(matrix.shared_copy_bytes for matrix in self.matrices)

    def named_layers(self) -> Iterator[tuple[str, nn.Module]]:
        """(`embedding` | `layer-0007` | `head`, its module), in pipeline order."""
        yield from self.layers.items()


def _matrices_of(layers: nn.Module) -> Iterator[Matrix]:
    return (module for module in layers.modules() if isinstance(module, Matrix))


def stream_dtype(plan: WorkerPlan) -> torch.dtype:
    """What crosses a stage boundary: the residual stream, 4 bytes an element in fp32 and 2 in bf16."""
    return torch.bfloat16 if plan.dtype == "bf16" else torch.float32


def layer_name(layer: int) -> str:
    """Name of transformer layer `layer` (from 0) in checkpoints."""
    return f"layer-{layer:04d}"


def boundary_example(plan: WorkerPlan, width: int, device: torch.device) -> Tensor:
    """A tensor [b, s, width] like those between stages. It asks for a gradient, as what is received must."""
    shape = (plan.micro_batch, plan.model.seq_len, width)
    return torch.empty(shape, dtype=stream_dtype(plan), device=device, requires_grad=True)


def _initialise(module: nn.Module, seed: int, name: str, model: WorkerModel) -> None:
    """Normal weights from a generator of this layer's own, so that they do not depend on the stage it is in.

    Projections back into the residual stream start smaller by √(2L), as each layer adds two of them (Radford
    et al. 2019, section 2.3). Norms start at one.
    """
    generator = generator_for(seed, "weights", name)
    with torch.no_grad():
        for parameter_name, parameter in module.named_parameters():
            if parameter.dim() < 2:
                continue
            into_stream = parameter_name in ("attention.output.weight", "mlp.down.weight")
            std = INITIAL_STD / math.sqrt(2 * model.layers) if into_stream else INITIAL_STD
            parameter.normal_(0.0, std, generator=generator)
