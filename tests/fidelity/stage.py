"""A stage worker that sleeps where it would compute: the built-in worker in everything else.

Run by the study alone (`tests/fidelity/gang.py`). The rendezvous, the schedule, gloo, the votes and the reports are the
worker's own; its stage module is replaced by one that passes real tensors on after the seconds that it is told. So a
pipeline may have more stages than the machine has cores.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from agents.protocol import WorkerPlan
from agents.worker import trained_stage
from agents.worker.__main__ import main
from agents.worker.left import LeftGradients
from agents.worker.stage import layer_name
from service.cli.testbed.namespaces import Namespace


class _Paced(torch.autograd.Function):
    """The identity, whose gradient takes a while."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, backward_s: float) -> Tensor:
        ctx.backward_s = backward_s
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        time.sleep(ctx.backward_s)
        return gradient, None


class SleepingLeft(LeftGradients):
    """Whose second part takes a while."""

    def __init__(self, weight_gradient_s: float) -> None:
        super().__init__()
        self._weight_gradient_s = weight_gradient_s

    def take(self) -> Callable[[], None]:
        add = super().take()

        def slept() -> None:
            time.sleep(self._weight_gradient_s)
            add()

        return slept


class SleepingStage(nn.Module):
    """Takes and gives what a stage of the plan does; `FIDELITY_SECONDS` says how long it pretends to compute."""

    def __init__(self, plan: WorkerPlan, stage: int, device: torch.device) -> None:
        super().__init__()
        seconds = json.loads(os.environ["FIDELITY_SECONDS"])  # of each stage of this rank
        self._forward_s, self._input_gradient_s, self._weight_gradient_s = seconds
        self._leaves = False
        self._name = layer_name(stage)
        self.layer = nn.ParameterDict({"weight": torch.zeros(plan.model.hidden)}).to(device)
        if stage == 0:
            self.layer["embedding"] = torch.zeros(plan.model.hidden)

    def forward(self, x: Tensor) -> Tensor:
        begin_s = time.perf_counter()
        stream = x if x.is_floating_point() else self.layer["embedding"].expand(*x.shape, -1)
        stream = _Paced.apply(stream, self._input_gradient_s)
        weight = self.layer["weight"]
        stream = stream + (weight if self._leaves else _Paced.apply(weight, self._weight_gradient_s))
        time.sleep(max(0.0, self._forward_s - (time.perf_counter() - begin_s)))
        return stream

    def share_copies(self, optimizer: Optimizer) -> None:
        """There are none."""

    def leave_gradients(self) -> LeftGradients:
        """The weights take their time in the second part of a backward."""
        self._leaves = True
        return SleepingLeft(self._weight_gradient_s)

    def named_layers(self) -> Iterator[tuple[str, nn.Module]]:
        """As a stage names its layers."""
        yield self._name, self.layer


def run() -> None:
    """Train in the namespace `FIDELITY_NAMESPACE`, before whatever else wants the processor."""
    keeper, region = os.environ["FIDELITY_NAMESPACE"].split(":")
    Namespace(int(keeper), region).enter()
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    with mock.patch.object(trained_stage, "StageModule", SleepingStage):  # fails where the worker has none
        main()


if __name__ == "__main__":
    run()
