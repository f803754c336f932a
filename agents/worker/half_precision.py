"""Computing in bf16, and the bf16 copies of weights that autocast makes for it.

Autocast makes a copy of a weight where a matrix is multiplied with it, and forgets it when the outermost of its bodies
ends; a micro-batch in flight goes on keeping it for its backward. So every one would hold a copy of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from agents.protocol import WorkerPlan


@contextmanager
def half_precision(device_type: str, *, keeps_copies: bool) -> Iterator[None]:
    """Matrices are multiplied in bf16.

    With `keeps_copies` those of the weights stay for the bodies to come, until `forget_copies`, which whoever changes
    weights has to call.
    """
    if keeps_copies:
        with _inside(), torch.autocast(device_type, torch.bfloat16):
            yield
    else:
        with torch.autocast(device_type, torch.bfloat16):
            yield


@contextmanager
def as_before(device_type: str, dtype: torch.dtype, *, enabled: bool) -> Iterator[None]:
    """Autocast as it was in a forward, a part of which is computed again: no copy is taken, made or forgotten."""
    with _inside(), torch.autocast(device_type, dtype, enabled=enabled, cache_enabled=False):
        yield


def shares_copies(plan: WorkerPlan) -> bool:
    """Whether micro-batches share them: where weights change but once an iteration, when none is in flight."""
    return plan.dtype == "bf16" and plan.weight_rule == "flush"


def forget_copies() -> None:
    """The weights have changed."""
    torch.clear_autocast_cache()


@contextmanager
def _inside() -> Iterator[None]:
    """No body of autocast that ends in this one is the outermost."""
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        torch.autocast_decrement_nesting()
