"""Versions of the weights of a stage, as autograd sees them.

A linear layer keeps a view of the storage that its weight had at the forward, a norm keeps the parameter itself and
looks at its storage again in the backward. So for a backward with the weights of its forward, the update must go to
another storage (`move`), and the very tensors of the forward must stand in the parameters during the backward
(`standing`): copies of them, with an update in place, would give the linear layers new weights and the norms old ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Version = list[Tensor]
"""One tensor for each parameter, in their order."""


def version_of(parameters: Sequence[nn.Parameter]) -> Version:
    """What stands in the parameters now: the tensors themselves, no copies."""
    return [parameter.data for parameter in parameters]


def move(parameters: Sequence[nn.Parameter], version: Version) -> None:
    """Let the parameters stand on these tensors. What stood there before is not written to."""
    for parameter, tensor in zip(parameters, version, strict=True):
        parameter.data = tensor


@contextmanager
def standing(parameters: Sequence[nn.Parameter], version: Version) -> Iterator[None]:
    """A version stands in the parameters while the context is open, then what was there before."""
    before = version_of(parameters)
    move(parameters, version)
    try:
        yield
    finally:
        move(parameters, before)


@contextmanager
def unseen_by_autograd(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Parameters may be written to in place although backwards that saved them are still to come.

    Without this autograd refuses such a backward. It does not bring back what was overwritten.
    """
    with torch.autograd._unsafe_preserve_version_counter(tuple(parameters)):  # type: ignore[attr-defined]
        yield
