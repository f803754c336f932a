"""A worker whose receiving threads have a fault, as a script."""

from __future__ import annotations

from torch import Tensor

from agents.worker.__main__ import main
from agents.worker.executor.messages import Packing, Tensors


def unpack(self: Packing, message: Tensor) -> tuple[int, Tensors]:
    raise TypeError("not what was expected")


Packing.unpack = unpack  # type: ignore[method-assign]
main()
