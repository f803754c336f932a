"""What one GPU or CPU slot sustains: forward and backward of transformer layers, measured for a few seconds.

`python -m agents.worker.probe --seconds 3 --device cpu --threads 1` prints one JSON line. FLOPs are counted as
the planner counts them, 6N + 12·h·s a token for a layer of N parameters (non-causal attention, as MFU is
published), so that a step predicted from the figure takes the time that this code took.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from agents.protocol import WorkerModel
from agents.worker.model import Block

T = TypeVar("T")

LAYERS = 2
WARM_UP = 2


@dataclass(frozen=True, slots=True)
class ProbeShape:
    """What is run: the shape of models that a device of the kind is used for."""

    model: WorkerModel
    micro_batch: int
    stream_dtype: torch.dtype


SHAPES = {
    "cpu": ProbeShape(
        WorkerModel(
            layers=LAYERS, hidden=192, heads=6, kv_heads=6, head_dim=32, ffn=512, vocab=256, seq_len=128
        ),
        micro_batch=4,
        stream_dtype=torch.float32,
    ),
    "cuda": ProbeShape(
        WorkerModel(
            layers=LAYERS,
            hidden=4096,
            heads=32,
            kv_heads=32,
            head_dim=128,
            ffn=11008,
            vocab=256,
            seq_len=2048,
        ),
        micro_batch=2,
        stream_dtype=torch.bfloat16,
    ),
}


@dataclass(frozen=True, slots=True)
class Sustained:
    """The answer: FLOP/s, and the median times of a forward and a backward pass of the probe's layers."""

    sustained_flops: float
    forward_s: float
    backward_s: float
    device: str
    torch_version: str


def measure(device_type: str, seconds: float) -> Sustained:
    """Run forwards and backwards for about `seconds` on `cpu` or `cuda`."""
    shape, device = SHAPES[device_type], torch.device(device_type)
    layers = nn.Sequential(*(Block(shape.model, "none", shape.stream_dtype) for _ in range(LAYERS))).to(
        device
    )
    size = (shape.micro_batch, shape.model.seq_len, shape.model.hidden)
    x = torch.randn(size, dtype=shape.stream_dtype, device=device, requires_grad=True)
    gradient = torch.randn_like(x)
    forwards: list[float] = []
    backwards: list[float] = []

    until_s = time.perf_counter() + seconds
    while len(forwards) < WARM_UP + 3 or time.perf_counter() < until_s:
        y, forward_s = _timed(partial(layers, x), device)
        _, backward_s = _timed(partial(torch.autograd.backward, y, gradient), device)
        forwards.append(forward_s)
        backwards.append(backward_s)
    forward_s, backward_s = (statistics.median(times[WARM_UP:]) for times in (forwards, backwards))
    return Sustained(
        sustained_flops=layer_flops(shape.model, layers) * shape.micro_batch / (forward_s + backward_s),
        forward_s=forward_s,
        backward_s=backward_s,
        device=torch.cuda.get_device_name(device) if device_type == "cuda" else "cpu",
        torch_version=torch.__version__,
    )


def layer_flops(model: WorkerModel, layers: nn.Module) -> float:
    """Forward and backward of `layers` for one sequence: s × (6N + 12·L·h·s) FLOPs."""
    parameters = sum(parameter.numel() for parameter in layers.parameters())
    return float(model.seq_len * (6 * parameters + 12 * LAYERS * model.hidden * model.seq_len))


def _timed(function: Callable[[], T], device: torch.device) -> tuple[T, float]:
    begin_s = time.perf_counter()
    result = function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return result, time.perf_counter() - begin_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m agents.worker.probe", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="about how long to measure")
    parser.add_argument("--device", choices=sorted(SHAPES), default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="threads of a CPU slot")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(json.dumps(asdict(measure(arguments.device, arguments.seconds))))


if __name__ == "__main__":
    main()
