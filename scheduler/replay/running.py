"""A generation of a job while it holds its GPUs: restarting, then training, then perhaps writing its state.

Times count from the start of the scenario.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.cluster import Cluster
from scheduler.datasets import Bringing
from scheduler.job import Elasticity
from scheduler.placement import Allocation, Transfer
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.meter import Arrival, Generation
from scheduler.replay.truth import Pace
from scheduler.restart import state_after_stop, state_of, time_to_stop_s
from scheduler.snapshot import RunningJob, StateSpan


@dataclass(slots=True, eq=False)
class Run:
    """`done_before` counts the steps that earlier generations did and kept; `state` is the checkpoint it started from.

    `stopped_s` is when it was told to stop, None until then. `end_s` is when it will have done its last step, or, once
    it was told to stop, written its state; `ready_s` is when it takes its first step, None in the first generation,
    which takes it at once.
    """

    job: ReplayJob
    allocation: Allocation
    pace: Pace
    done_before: int
    spent_usd: float
    state: tuple[StateSpan, ...]
    arrivals: tuple[Arrival, ...]
    start_s: float
    ready_s: float | None
    end_s: float
    stopped_s: float | None = None
    leaves: tuple[StateSpan, ...] = ()
    """Where its state lies once it has stopped."""
    steps_lost: int = 0
    """Steps that it did and a fault undid."""
    brought: frozenset[str] = frozenset()
    """Regions where its data sets are, by now, because it has begun there."""
    brings: tuple[Bringing, ...] = ()
    """What it brought there when it began."""
    regions: frozenset[str] = frozenset()
    """Where it holds anything, or anything travels from or to."""
    as_begun: RunningJob | None = None
    """As it was seen when it began."""

    @classmethod
    def beginning(
        cls,
        job: ReplayJob,
        allocation: Allocation,
        pace: Pace,
        done_before: int,
        spent_usd: float,
        state: tuple[StateSpan, ...],
        arrivals: tuple[Arrival, ...],
        start_s: float,
        ready_s: float | None,
        brought: frozenset[str],
        brings: tuple[Bringing, ...],
    ) -> Run:
        """The generation at the moment at which it gets its GPUs."""
        first_step_s = start_s if ready_s is None else ready_s
        end_s = first_step_s + (job.actual_steps - done_before) * pace.iteration_s
        return cls(
            job,
            allocation,
            pace,
            done_before,
            spent_usd,
            state,
            arrivals,
            start_s,
            ready_s,
            end_s,
            brought=brought,
            brings=brings,
        )

    @property
    def key(self) -> tuple[str, int]:
        return (self.job.spec.job_id, self.allocation.generation)

    @property
    def elastic(self) -> bool:
        """Whether a policy may stop it now."""
        return self.stopped_s is None and self.job.spec.elasticity is not Elasticity.NONE

    def steps_by(self, now_s: float) -> int:
        """Steps that this generation has done by then."""
        left = self.job.actual_steps - self.done_before
        if self.stopped_s is None and now_s >= self.end_s:
            return left
        until_s = now_s if self.stopped_s is None else min(now_s, self.stopped_s)
        training_s = until_s - (self.start_s if self.ready_s is None else self.ready_s)
        # The last step ends at `end_s`, whatever the quotient rounds to.
        return max(0, min(int(training_s / self.pace.iteration_s), left - 1))

    def as_seen(self, now_s: float, epoch_s: float) -> RunningJob:
        """The job as a policy sees it: declared steps less those done, at least 1. `epoch_s`: the scenario's start."""
        done = self.done_before + self.steps_by(now_s)
        return RunningJob(
            spec=self.job.spec,
            allocation=self.allocation,
            remaining_steps=max(1, self.job.spec.training.steps - done),
            ready_s=None if self.ready_s is None else epoch_s + self.ready_s,
            transfers=self.travelling(now_s),
            stopping=self.stopped_s is not None,
            spent_usd=self.spent_usd,
            state=self.state,
            brought=self.brought,
        )

    def travelling(self, now_s: float) -> tuple[Transfer, ...]:
        """The transfers that have not arrived: they hold their bandwidth."""
        return tuple(each.transfer for each in self.arrivals if each.at_s > now_s)

    def as_held(self, now_s: float, epoch_s: float) -> RunningJob:
        """What it holds now, as a policy sees it; how many steps are left is that of any time since it began."""
        if self.as_begun is None or self.arrivals or self.stopped_s is not None:
            self.as_begun = self.as_seen(now_s, epoch_s)
        return self.as_begun

    def stop(self, cluster: Cluster, now_s: float, epoch_s: float) -> None:
        """Tells it to stop. The part of a step in progress is lost."""
        seen = self.as_seen(now_s, epoch_s)
        self.leaves = state_after_stop(seen, epoch_s + now_s)
        self.stopped_s = now_s
        self.end_s = now_s + time_to_stop_s(seen, cluster, epoch_s + now_s)

    def fail(self, now_s: float, checkpoint_every_s: float) -> None:
        """A fault ends it at once: it falls back to its last periodic checkpoint, or to what it started from.

        It wrote one every so often since its first step, beside its training. What it was writing in order to stop is
        not whole, and lost as well.
        """
        ready_s = self.start_s if self.ready_s is None else self.ready_s
        until_s = now_s if self.stopped_s is None else self.stopped_s
        checkpoints = max(0, int((until_s - ready_s) / checkpoint_every_s))
        kept = self.steps_by(ready_s + checkpoints * checkpoint_every_s) if checkpoints else 0
        self.steps_lost = self.steps_by(until_s) - kept
        self.leaves = state_of(self.job.spec, self.allocation.placement) if checkpoints else self.state
        self.stopped_s, self.end_s = until_s, now_s

    def generation(self) -> Generation:
        """What there is to bill once it has ended."""
        stopped_s = self.end_s if self.stopped_s is None else self.stopped_s
        return self._until(stopped_s, self.end_s)

    def so_far(self, now_s: float) -> Generation:
        """What there is to bill by now."""
        return self._until(now_s if self.stopped_s is None else self.stopped_s, now_s)

    def _until(self, stopped_s: float, end_s: float) -> Generation:
        ready_s = self.start_s if self.ready_s is None else min(self.ready_s, stopped_s)
        return Generation(
            spec=self.job.spec,
            number=self.allocation.generation,
            placement=self.allocation.placement,
            pace=self.pace,
            steps=self.steps_by(end_s) - self.steps_lost,
            steps_lost=self.steps_lost,
            start_s=self.start_s,
            restart_s=ready_s - self.start_s,
            stop_s=end_s - stopped_s,
            end_s=end_s,
            arrivals=self.arrivals,
            brings=self.brings,
        )
