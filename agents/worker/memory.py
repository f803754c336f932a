"""What the stages of a rank hold in memory, and what would fit, for the reader of an out-of-memory end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.optim import Optimizer

from agents.protocol import WorkerPlan
from agents.worker.executor.rank_plan import RankPlan
from agents.worker.left import LeftGradients
from agents.worker.matrix import Matrix
from agents.worker.optimizer import state_bytes
from agents.worker.stage import StageModule


@dataclass(frozen=True, slots=True)
class StageFigures:
    """Bytes of one stage, when memory ran out."""

    stage: int
    first_layer: int
    layers: int
    weights: int
    gradients: int
    """Held; as many as weights once a backward has been through."""
    optimizer: int
    """Held; `optimizer_needed` once a step has been taken."""
    optimizer_needed: int
    copies: int
    """In bf16, of weights, that all micro-batches share; where each has its own, `micro_batch_bytes` has them."""
    in_flight: int
    """Micro-batches between their forward and their backward."""
    window: int
    """The most of them that its plan has."""
    micro_batch_bytes: int
    """What each keeps for its backward; 0 before the first has been through."""
    left: int
    """Held between the two parts of backwards."""
    most: float
    """Micro-batches that its plan has it hold at once; those between the parts of their backward as parts of one."""

    @property
    def held(self) -> int:
        resting = self.weights + self.gradients + self.optimizer + self.copies
        return resting + self.in_flight * self.micro_batch_bytes + self.left

    @property
    def resting(self) -> int:
        """What it needs beside micro-batches."""
        return 2 * self.weights + max(self.optimizer, self.optimizer_needed) + self.copies

    @property
    def needed(self) -> int:
        """With as much in flight as its plan has."""
        return self.resting + self.activations

    @property
    def activations(self) -> int:
        """The most that micro-batches come to."""
        return math.ceil(self.most * self.micro_batch_bytes)


class ActivationMeter:
    """Counts the micro-batches in flight of one stage, and measures what the first of them keeps for its backward."""

    def __init__(self, module: nn.Module, *, has_loss: bool) -> None:
        """`module` is called once a micro-batch; `has_loss` where a loss over its output follows."""
        self._module, self._has_loss = module, has_loss
        self._measuring: saved_tensors_hooks | None = None
        self._storages: dict[int, int] = {}
        self.in_flight = 0
        self.micro_batch_bytes = 0
        module.register_forward_pre_hook(self._begin)
        module.register_forward_hook(self._end)

    def _begin(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if not self.micro_batch_bytes and self._measuring is None:
            self._storages.clear()
            self._measuring = saved_tensors_hooks(self._keep, lambda tensor: tensor)
            self._measuring.__enter__()

    def _keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._storages[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    def _end(self, module: nn.Module, inputs: tuple[Tensor, ...], given: Tensor | tuple[Tensor, ...]) -> None:
        outputs = given if isinstance(given, tuple) else (given,)
        if self._measuring is not None:
            self._measuring.__exit__(None, None, None)
            self._measuring = None
            self._measure(outputs)
        learned = next((output for output in outputs if output.requires_grad), None)
        if learned is not None:
            self.in_flight += 1
            learned.register_hook(self._leaves)  # type: ignore[no-untyped-call]

    def _measure(self, outputs: Sequence[Tensor]) -> None:
        for output in outputs:
            self._keep(output)
        matrices = (module for module in self._module.modules() if isinstance(module, Matrix))
        copies = (matrix.shared_copy for matrix in matrices if matrix.shared_copy is not None)
        held_anyway = chain(self._module.parameters(), self._module.buffers(), copies)
        without = {each.untyped_storage().data_ptr() for each in held_anyway}
        kept = sum(size for storage, size in self._storages.items() if storage not in without)
        # Beside the logits the loss keeps their log-probabilities, in fp32.
        self.micro_batch_bytes = kept + (4 * outputs[0].numel() if self._has_loss else 0)

    def _leaves(self, gradient: Tensor) -> None:
        self.in_flight -= 1


def figures(
    plan: WorkerPlan,
    stage: int,
    rank_plan: RankPlan,
    module: StageModule,
    optimizer: Optimizer,
    meter: ActivationMeter,
    left: LeftGradients | None,
) -> StageFigures:
    """Of one stage now, from the sizes of its tensors."""
    parameters = list(module.parameters())
    states = (value for state in optimizer.state.values() for value in state.values())
    return StageFigures(
        stage=stage,
        first_layer=sum(plan.layers_per_stage[:stage]),
        layers=plan.layers_per_stage[stage],
        weights=_bytes(parameters),
        gradients=_bytes(each.grad for each in parameters if each.grad is not None),
        optimizer=_bytes(value for value in states if isinstance(value, Tensor)),
        optimizer_needed=state_bytes(optimizer, module),
        copies=module.shared_copies_bytes,
        in_flight=meter.in_flight,
        window=rank_plan.caps[stage],
        micro_batch_bytes=meter.micro_batch_bytes,
        left=left.held_bytes if left is not None else 0,
        most=rank_plan.most_held(stage, _pending_share(meter, left)),
    )


def _pending_share(meter: ActivationMeter, left: LeftGradients | None) -> float:
    if left is None or not left.micro_batch_bytes:
        return 1.0  # nothing is left, or nothing is known of it yet
    return left.micro_batch_bytes / meter.micro_batch_bytes


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Bytes of a GPU, by torch.cuda's statistics."""

    available: int
    """The most that this process could have now: what it has reserved, and what is free."""
    allocated: int
    """In tensors of this process."""


def gpu_memory(device: torch.device) -> GpuMemory | None:
    """None where there is no GPU."""
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return GpuMemory(free + torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device))


def account(plan: WorkerPlan, stages: Sequence[StageFigures], gpu: GpuMemory | None) -> str:
    """Which stages held what, and what would fit into the GPU; without one: into what they held together."""
    lines = [_held(stage, len(plan.layers_per_stage)) for stage in stages]
    limit = held = sum(stage.held for stage in stages)
    if gpu is not None:
        others = max(0, gpu.allocated - held)
        limit = gpu.available - others
        lines.append(
            f"the GPU has {_size(gpu.available)} for this process, of which {_size(others)} are in other tensors"
        )
    return "; ".join([*lines, _what_fits(plan, stages, limit)])


def _held(stage: StageFigures, stages: int) -> str:
    last = stage.first_layer + stage.layers - 1
    layers = f"layers {stage.first_layer} to {last}"
    ends = [
        name for name, has in (("embedding", stage.stage == 0), ("head", stage.stage == stages - 1)) if has
    ]
    if stage.micro_batch_bytes:
        activations = (
            f"activations {stage.in_flight} micro-batches in flight × {_size(stage.micro_batch_bytes)} "
            f"(window {stage.window})"
        )
    else:
        activations = "activations not measured yet: no micro-batch had come through its forward"
    left = f" and {_size(stage.left)} left for gradients of weights" if stage.left else ""
    copies = f" and their bf16 copies {_size(stage.copies)}" if stage.copies else ""
    return (
        f"stage {stage.stage} of {stages} ({', '.join([layers, *ends])}) held {_size(stage.held)}: weights "
        f"{_size(stage.weights)}{copies}, gradients {_size(stage.gradients)}, optimizer {_size(stage.optimizer)} of "
        f"{_size(stage.optimizer_needed)}, {activations}{left}"
    )


def _what_fits(plan: WorkerPlan, stages: Sequence[StageFigures], limit: int) -> str:
    if not all(stage.micro_batch_bytes for stage in stages):
        return "more stages, a smaller micro_batch or more recomputation would take less"
    resting = sum(stage.resting for stage in stages)
    activations = sum(stage.activations for stage in stages)
    found = []
    if len(stages) == 1 and stages[0].most == stages[0].window:
        window = (limit - resting) // stages[0].micro_batch_bytes
        if 1 <= window < stages[0].window:
            found.append(f"a window of at most {window} here")
    micro_batch = plan.micro_batch * (limit - resting) // activations
    if 1 <= micro_batch < plan.micro_batch:
        found.append(f"micro_batch {micro_batch}")
    held_layers = sum(stage.layers for stage in stages)
    # Everything is taken as in proportion to the layers, with the window as it is.
    layers = math.floor(held_layers * limit / (resting + activations))
    more = math.ceil(plan.model.layers / layers) if layers else 0
    if len(plan.layers_per_stage) < more <= plan.model.layers:
        found.append(f"{more} stages")
    needed = f"{_size(resting + activations)} are needed in {_size(limit)}"
    return f"{needed}; what would fit: {', or '.join(found) or 'nothing but more memory'}"


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _size(size: int) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.3f} MB"
