"""What whole workers tell of how late their weights are: of every stage, though the last one alone reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("stage-workers")

POISONED = Path(__file__).with_name("poisoned_worker.py")


def run(gangs: Any, stages: int, **changes: Any) -> list[Any]:
    """The workers, once they have finished; `data`, `script` and `env` are the gang's, the rest the plan's."""
    given = {name: changes.pop(name) for name in ("data", "script", "env") if name in changes}
    workers: list[Any] = gangs.start(gangs.plan(stages, checkpoint_every=1000, **changes), stages, **given)
    assert [worker.exit_code() for worker in workers] == [0] * len(workers), workers[0].log.read_text()
    return workers


@pytest.mark.parametrize(
    ("rule", "every", "window", "bound"),
    [("current", 1, [6, 3, 1], 5), ("current", 4, [6, 3, 1], 2), ("double-buffered", 2, [3, 2, 1], 1)],
)
def test_steps_tell_the_largest_drift_of_any_stage_and_its_bound(
    gangs: Any, rule: str, every: int, window: list[int], bound: int
) -> None:
    workers = run(gangs, 3, steps=6, weight_rule=rule, update_every=every, window=window, micro_batches=8)

    steps = workers[-1].reports("step")
    assert [step["step"] for step in steps] == list(range(1, 7))
    assert {(step["drift_bound"], step["rolled_back"]) for step in steps} == {(bound, 0)}
    # The first stage is the one that drifts; once the pipeline is full, as far as it may.
    assert max(step["drift"] for step in steps) == bound
    assert all(step["drift"] <= bound for step in steps)


def test_drift_is_that_of_the_step(gangs: Any) -> None:
    """A step of a single micro-batch, with the pipeline emptied after it, drifts not at all."""
    (worker,) = run(gangs, 1, steps=3, weight_rule="current", micro_batches=1, window=[1])

    assert [(step["drift"], step["drift_bound"]) for step in worker.reports("step")] == [(0, 0)] * 3


def test_of_replicas_the_first_tells(gangs: Any) -> None:
    workers = run(gangs, 2, data=2, steps=4, weight_rule="current", update_every=2)

    told = [worker.reports("step") for worker in workers]
    assert [len(steps) for steps in told] == [0, 0, 4, 0]
    assert {step["drift_bound"] for step in told[2]} == {1}


def test_updates_that_were_taken_back_are_counted_over_all_stages(gangs: Any) -> None:
    workers = run(
        gangs, 3, script=POISONED, env={"POISONED": "1"}, steps=20, weight_rule="current", update_every=2
    )

    taken_back = sum(worker.log.read_text().count("the update is taken back") for worker in workers)
    counted = [step["rolled_back"] for step in workers[-1].reports("step")]
    assert taken_back >= 3
    assert counted[-1] == taken_back
    assert counted[0] == 0
    assert counted == sorted(counted)


def test_synchronous_steps_have_no_drift_to_tell(gangs: Any) -> None:
    workers = run(gangs, 2, steps=2)

    assert all("drift" not in step and "grad_norm" in step for step in workers[-1].reports("step"))
