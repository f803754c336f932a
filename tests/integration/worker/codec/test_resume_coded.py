"""A coded job goes on after a stop: exactly with the same cut, and also with another one or without its codec."""

from __future__ import annotations

from typing import Any

import pytest

from agents.protocol import WorkerCodec

pytestmark = pytest.mark.xdist_group("stage-workers")

CODEC = WorkerCodec(rank=6, boundaries=[0])


def test_a_resumed_job_has_the_losses_of_an_undisturbed_one(gangs: Any) -> None:
    def run(folder: str, **changes: Any) -> dict[int, float]:
        uri = (gangs.folder / folder).as_uri()
        workers = gangs.start(gangs.plan(2, codec=CODEC, checkpoint_uri=uri, **changes), 2)
        assert [worker.exit_code() for worker in workers] == [0, 0], workers[0].log.read_text()
        losses: dict[int, float] = workers[1].losses
        return losses

    undisturbed = run("undisturbed", steps=8)
    first = run("resumed", steps=4)
    second = run("resumed", steps=8, resume_step=4)

    assert first | second == pytest.approx(undisturbed, abs=1e-6)


@pytest.mark.parametrize(
    ("stages", "changes"),
    [
        pytest.param(4, {"codec": WorkerCodec(rank=6, boundaries=[0, 2])}, id="another-cut"),
        pytest.param(1, {"codec": None}, id="one-stage-without-a-codec"),
        pytest.param(2, {"codec": None}, id="the-same-cut-without-a-codec"),
    ],
)
def test_it_goes_on_with_another_cut_and_without_its_codec(
    gangs: Any, stages: int, changes: dict[str, Any]
) -> None:
    first = gangs.start(gangs.plan(2, steps=4, codec=CODEC), 2)
    assert [worker.exit_code() for worker in first] == [0, 0], first[0].log.read_text()

    second = gangs.start(gangs.plan(stages, steps=6, resume_step=4, **changes), stages)

    assert [worker.exit_code() for worker in second] == [0] * stages, second[0].log.read_text()
    assert list(second[-1].losses) == [5, 6]


def test_another_rank_ends_with_what_would_be_right(gangs: Any) -> None:
    first = gangs.start(gangs.plan(2, steps=2, codec=CODEC), 2)
    assert [worker.exit_code() for worker in first] == [0, 0]

    changed = CODEC.model_copy(update={"rank": 8})
    second = gangs.start(gangs.plan(2, steps=4, resume_step=2, codec=changed), 2)

    ends = [(worker.exit_code(), worker.end["cause"]) for worker in second]
    assert (17, "checkpoint-unusable") in ends
    assert any("rank 6, the plan's 8" in worker.end["detail"] for worker in second)
