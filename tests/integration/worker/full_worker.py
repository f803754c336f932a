"""A worker whose memory is full at one forward of its stage, as a script: FULL_RANK's FULL_AT-th, with FULL_ERROR."""

from __future__ import annotations

import itertools
import os

import torch
from torch import Tensor

from agents.worker.__main__ import main
from agents.worker.stage import StageModule

ERRORS = {
    "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "cpu": RuntimeError(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 2147483648 bytes."
    ),
    "python": MemoryError(),
}
forward = StageModule.forward
numbers = itertools.count(1)


def full(self: StageModule, x: Tensor) -> Tensor:
    if next(numbers) == int(os.environ["FULL_AT"]) and os.environ["RANK"] == os.environ["FULL_RANK"]:
        raise ERRORS[os.environ["FULL_ERROR"]]
    return forward(self, x)


StageModule.forward = full  # type: ignore[method-assign]
main()
