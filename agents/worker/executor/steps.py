"""The training steps that an executor runs from an empty pipeline to an empty pipeline: its port to the trainer."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

Batch = tuple[Tensor | None, Tensor | None]
"""The sequences of all micro-batches of a step on the rank of the first stage; their targets on that of the last."""


class Steps(Protocol):
    """Steps that run one into the other, numbered from 0. The first is certain; of the others `follows` tells."""

    def batch(self, step: int) -> Batch:
        """What a step learns from."""

    def begin(self, step: int) -> None:
        """This rank is about to compute the first of a step."""

    def follows(self, wait: bool) -> bool | None:
        """Whether another step follows the last that is known before the pipeline is empty; once False, always False.

        None while that is not decided, unless the caller can `wait`. All ranks of the gang hear the same.
        """

    def turn(self, stage: int, step: int) -> None:
        """A stage of this rank has updated for all steps before this one, which may not follow."""

    def end(self, step: int, losses: list[Tensor]) -> None:
        """All stages of this rank have gone backward in a step, and updated.

        `losses` are those of its micro-batches, in their order, on the rank of the last stage.
        """
