"""A worker whose losses are no numbers from the tenth micro-batch on, for POISONED micro-batches, as a script."""

from __future__ import annotations

import math
import os
from itertools import chain, repeat

from torch import Tensor

from agents.worker.__main__ import main
from agents.worker.executor import assembly
from agents.worker.model import cross_entropy

factor = chain(repeat(1.0, 9), repeat(math.nan, int(os.environ["POISONED"])), repeat(1.0))


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits, targets) * next(factor)


assembly.cross_entropy = loss  # type: ignore[attr-defined]
main()
