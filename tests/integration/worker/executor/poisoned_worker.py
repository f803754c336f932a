"""A worker whose first loss of its tenth micro-batch is not a number, as a script."""

from __future__ import annotations

import math
from itertools import chain, repeat

from torch import Tensor

from agents.worker.__main__ import main
from agents.worker.executor import assembly
from agents.worker.model import cross_entropy

POISONED = 10
factor = chain(repeat(1.0, POISONED - 1), [math.nan], repeat(1.0))


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits, targets) * next(factor)


assembly.cross_entropy = loss  # type: ignore[attr-defined]
main()
