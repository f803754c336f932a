"""`bace`, with one policy more: `widening` gives a job that has got going on two stages a third one elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

from scheduler import policies
from scheduler.job import Elasticity
from scheduler.plan import Decision, Hold, Plan
from scheduler.reasons import Reason, ReasonCode
from scheduler.snapshot import RunningJob, Snapshot
from tests.control_script import move_to, start_at

HOME, ELSEWHERE = "eu-west-2", "eu-west-3"
GOING = 10
"""Steps."""


@dataclass(frozen=True, slots=True)
class Widening:
    """Two stages at home for everybody; three, in two regions, for one that may be resized and is going."""

    name: str = "widening"
    meaning: str = "A third stage for a job that is going."
    replans: bool = True

    def decide(self, snapshot: Snapshot, *, strict: bool, seed: int) -> Plan:
        return Plan(snapshot.version, tuple(self._decisions(snapshot)))

    def _decisions(self, snapshot: Snapshot) -> Iterator[Decision]:
        regions = {node.region for node in snapshot.cluster.nodes}
        for place, waiting in enumerate(snapshot.waiting, 1):
            if regions >= {HOME, ELSEWHERE}:
                yield start_at(waiting.spec.job_id, {HOME: 2})(snapshot)
            else:
                reason = Reason(ReasonCode.NO_CAPACITY_YET, "both regions first")
                yield Hold(waiting.spec.job_id, place, (reason,))
        for running in snapshot.running:
            if _is_going(running):
                yield move_to(running.spec.job_id, {HOME: 2, ELSEWHERE: 1}, "it is going")(snapshot)


def _is_going(job: RunningJob) -> bool:
    done = job.spec.training.steps - job.remaining_steps
    narrow = job.allocation.placement.stages == 2
    return not job.stopping and job.spec.elasticity is Elasticity.RESIZE and narrow and done >= GOING


if __name__ == "__main__":
    widening = Widening()
    known = MappingProxyType({**policies.POLICIES, widening.name: widening})
    policies.POLICIES = known  # type: ignore[assignment]  # before anybody has asked for it

    from service.cli.main import main

    main()
