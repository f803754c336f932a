"""Whole workers that train by our own executor: they learn, stop, resume and end as on torch's."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Any

import pytest

from agents.protocol import WorkerCodec
from scheduler.pipeline.plan import layouts, split_orders
from scheduler.pipeline.plan.ir import Plan
from tests.integration.worker.test_equal_losses import one_process
from tests.plans import together
from tests.wire_plans import wire_plan

pytestmark = pytest.mark.xdist_group("stage-workers")

TOLERANCE = 1e-4
ENDLESS = 100_000
FAULTY = Path(__file__).with_name("faulty_worker.py")
ZB_V = together(layouts.vee(2), split_orders.zb_v(2, 4))


def start(gangs: Any, plan: Plan, **changes: Any) -> list[Any]:
    """A worker for every rank, each with its own order."""
    port, ranks = gangs.free_port(), len(plan.actions)
    uri = (gangs.folder / "checkpoints").as_uri()
    return [
        gangs.start(
            wire_plan(plan, rank, **{"checkpoint_uri": uri, **changes}), ranks, ranks=[rank], port=port
        )[0]
        for rank in range(ranks)
    ]


@pytest.mark.parametrize(
    "changes",
    [{}, {"window": [4, 4, 4], "dtype": "bf16"}, {"recompute": "full"}],
    ids=["1f1b", "bf16", "recomputed"],
)
def test_a_hint_learns_what_one_process_learns(gangs: Any, changes: dict[str, Any]) -> None:
    plan = gangs.plan(3, binding="hint", steps=6, **changes)

    workers = gangs.start(plan, 3)

    assert [worker.exit_code() for worker in workers] == [0] * 3, workers[-1].log.read_text()
    assert list(workers[-1].losses.values()) == pytest.approx(one_process(plan), abs=TOLERANCE)
    assert all(worker.end["cause"] == "finished" for worker in workers)
    assert all(0 < line["busy_fraction"] <= 1 for worker in workers for line in worker.reports("busy"))


def test_replicas_of_a_hinted_pipeline_learn_from_all_their_data(gangs: Any) -> None:
    plan = gangs.plan(2, binding="hint", steps=4)

    workers = gangs.start(plan, 2, data=2)

    assert [worker.exit_code() for worker in workers] == [0] * 4, workers[-1].log.read_text()
    assert list(workers[2].losses.values()) == pytest.approx(one_process(plan, replicas=2), abs=TOLERANCE)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("binding", ["strict", "hint"])
def test_a_rank_may_have_the_first_stage_and_the_last(gangs: Any, binding: str, dtype: str) -> None:
    """ZB-V, on torch's runtime and on ours. Its checkpoint knows nothing of where the stages stood."""
    changes = {"recompute": "selective", "dtype": dtype}
    workers = start(gangs, ZB_V, binding=binding, steps=4, checkpoint_every=2, **changes)

    assert [worker.exit_code() for worker in workers] == [0, 0], workers[0].log.read_text()
    plan = wire_plan(ZB_V, 0, steps=8, **changes)
    right = one_process(plan)
    assert list(workers[0].losses.values()) == pytest.approx(right[:4], abs=TOLERANCE)
    assert not workers[1].losses, "its stages are in the middle"
    resumed = gangs.start(
        gangs.plan(2, steps=8, resume_step=4, micro_batches=plan.micro_batches, seed=plan.seed, **changes), 2
    )
    assert [worker.exit_code() for worker in resumed] == [0, 0], resumed[0].log.read_text()
    assert list(resumed[1].losses.values()) == pytest.approx(right[4:], abs=TOLERANCE)


@pytest.mark.parametrize("rule", ["current", "predicted", "double-buffered", "stashed"])
def test_every_weight_rule_trains(gangs: Any, rule: str) -> None:
    plan = gangs.plan(2, weight_rule=rule, steps=12)

    workers = gangs.start(plan, 2)

    assert [worker.exit_code() for worker in workers] == [0, 0], workers[-1].log.read_text()
    losses = list(workers[-1].losses.values())
    assert losses[-1] < losses[0] < math.inf


def test_two_versions_of_the_weights_go_on_from_a_checkpoint(gangs: Any) -> None:
    changes = {"weight_rule": "double-buffered", "learning_rate": 0.01, "checkpoint_every": 10}
    first = gangs.start(gangs.plan(2, steps=20, **changes), 2)
    assert [worker.exit_code() for worker in first] == [0, 0], first[0].log.read_text()

    resumed = gangs.start(gangs.plan(2, steps=21, resume_step=20, **changes), 2)

    assert [worker.exit_code() for worker in resumed] == [0, 0], resumed[0].log.read_text()
    losses = first[-1].losses
    assert losses[1] - losses[20] > 1.0
    assert resumed[-1].losses[21] == pytest.approx(losses[20], abs=0.5), "not with the weights of the start"


def test_a_hint_trains_a_codec_as_a_strict_order_does(gangs: Any) -> None:
    codec = WorkerCodec(rank=8, boundaries=[0])
    losses = []
    for binding in ("strict", "hint"):
        folder = (gangs.folder / binding).as_uri()
        plan = gangs.plan(3, binding=binding, codec=codec, steps=5, checkpoint_uri=folder)
        workers = gangs.start(plan, 3)
        assert [worker.exit_code() for worker in workers] == [0] * 3, workers[0].log.read_text()
        losses.append(list(workers[-1].losses.values()))

    assert losses[0] == pytest.approx(losses[1], abs=TOLERANCE)


def test_all_ranks_stop_after_the_same_step(gangs: Any) -> None:
    workers = gangs.start(gangs.plan(3, binding="hint", steps=ENDLESS, checkpoint_every=ENDLESS), 3)
    gangs.until(lambda: len(workers[-1].losses) >= 3, "three steps")
    workers[1].send(signal.SIGTERM)

    assert [worker.exit_code() for worker in workers] == [0, 0, 0], workers[0].log.read_text()
    assert [worker.end["cause"] for worker in workers] == ["stopped"] * 3
    assert gangs.checkpoints.steps() == [max(workers[-1].losses)]


def test_a_rank_that_dies_ends_the_others_with_the_cause(gangs: Any) -> None:
    workers = gangs.start(gangs.plan(3, binding="hint", steps=ENDLESS, checkpoint_every=ENDLESS), 3)
    gangs.until(lambda: len(workers[-1].losses) >= 3, "three steps")
    workers[1].send(signal.SIGKILL)

    assert [worker.exit_code() for worker in workers] == [12, -9, 12], workers[0].log.read_text()
    assert workers[0].end["cause"] == workers[2].end["cause"] == "peer-lost"


def test_a_rank_that_falls_silent_ends_the_others(gangs: Any) -> None:
    plan = gangs.plan(2, binding="hint", steps=ENDLESS, checkpoint_every=ENDLESS)
    workers = gangs.start(plan, 2, env={"BACE_PEER_TIMEOUT": "2"})
    gangs.until(lambda: len(workers[1].losses) >= 2, "two steps")
    workers[0].send(signal.SIGSTOP)

    assert workers[1].exit_code() == 12
    assert workers[1].end["cause"] == "peer-lost"


def test_a_fault_in_a_thread_ends_its_worker(gangs: Any) -> None:
    workers = gangs.start(gangs.plan(2, binding="hint"), 2, script=FAULTY)

    assert 1 in {worker.exit_code() for worker in workers}
    crashed = [worker.end for worker in workers if worker.exit_code() == 1]
    assert crashed[0]["cause"] == "crashed"
    assert "TypeError: not what was expected" in crashed[0]["detail"]


def test_a_weight_rule_that_does_not_suit_the_window_is_named(gangs: Any) -> None:
    plan = gangs.plan(1, weight_rule="double-buffered", window=[3], micro_batches=4)
    (worker,) = gangs.start(plan, 1)

    assert worker.exit_code() == 2
    assert worker.end["cause"] == "invalid-plan"
    assert (
        "weight_rule double-buffered: update_every is 1 with 3 micro-batches in flight"
        in worker.end["detail"]
    )


def test_an_order_that_is_not_right_is_refused_before_anything_starts(gangs: Any) -> None:
    (worker,) = gangs.start(wire_plan(ZB_V, 1), 2, ranks=[0])

    assert worker.exit_code() == 2
    assert worker.end["cause"] == "invalid-plan"
    assert "order.actions: " in worker.end["detail"]
    assert "on rank 0, whose stages are [0, 3]" in worker.end["detail"]
