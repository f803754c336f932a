"""The steps from an empty pipeline to an empty pipeline: one, or, where they may run one into the other, many.

Then the pipeline is emptied where a checkpoint is due, where training ends, and where the vote says so. Every rank
knows that of a step before it begins the next, so all of them empty it after the same.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from agents.worker.executor.steps import Batch
from agents.worker.gang import StepVote, Verdict
from agents.worker.trainer import Trainer


class Stretch:
    """Runs steps of one rank, which are numbered from 1 in training and from 0 in an executor."""

    def __init__(
        self, trainer: Trainer, vote: StepVote, first: int, ended: Callable[[int, float], None]
    ) -> None:
        """`first` is the step to begin with; `ended` is told of every step and its loss."""
        self._trainer, self._vote, self._first, self._ended = trainer, vote, first, ended
        self._leads = trainer.settings.place.leads
        self.last = first
        """The last step that is known."""
        self._voted_on = 0
        """The last step whose vote has begun."""
        if not self._leads:
            self._begin_vote(first)

    def run(self) -> Verdict:
        """Run them. What the vote on the last of them says."""
        self._trainer.executor.run(self)
        return self._vote.end_step()

    def batch(self, step: int) -> Batch:
        """As an executor asks for it."""
        return self._trainer.batch(self._first + step)

    def begin(self, step: int) -> None:
        """The rate of learning is set where the pipeline is empty; and rank 0 tells whether the step is the last."""
        if step == 0:
            self._trainer.begin(self._first)
        if self._leads:
            self._begin_vote(self._first + step)

    def follows(self, wait: bool) -> bool | None:
        """Whether another step runs into the last that is known."""
        plan = self._trainer.settings.plan
        if not self._trainer.keeps_full or self.last == plan.steps or self.last % plan.checkpoint_every == 0:
            return False
        if self._voted_on < self.last or not (wait or self._vote.is_told()):
            return None
        if self._vote.end_step() is not Verdict.GO_ON:
            return False
        self.last += 1
        if not self._leads:
            self._begin_vote(self.last)
        return True

    def turn(self, stage: int, step: int) -> None:
        """From now on a stage learns as fast as in this step."""
        self._trainer.set_rate(stage, min(self._first + step, self._trainer.settings.plan.steps))

    def end(self, step: int, losses: list[Tensor]) -> None:
        """Tell of a step that is over."""
        self._ended(self._first + step, self._trainer.end(losses))

    def _begin_vote(self, step: int) -> None:
        self._voted_on = step
        self._vote.begin_step()
