"""Codecs learn the same where a stage's backward is split in two."""

from __future__ import annotations

from typing import Any

import pytest

from agents.protocol import WorkerCodec
from scheduler.pipeline.plan import layouts, split_orders
from tests.plans import together
from tests.wire_plans import wire_plan

pytestmark = pytest.mark.xdist_group("stage-workers")

ZB_H1 = together(layouts.line(3), split_orders.zb_h1(3, 4))
CODEC = WorkerCodec(rank=6, boundaries=[0, 1])


@pytest.mark.parametrize("binding", ["strict", "hint"])
def test_zb_h1_learns_what_1f1b_learns(gangs: Any, binding: str) -> None:
    def run(folder: str, order: bool) -> list[float]:
        changes = {
            "codec": CODEC,
            "steps": 4,
            "learning_rate": 0.01,
            "binding": binding,
            "checkpoint_uri": (gangs.folder / folder).as_uri(),
        }
        if not order:
            changes["order"] = None
        port = gangs.free_port()
        workers = [
            gangs.start(wire_plan(ZB_H1, rank, **changes), 3, ranks=[rank], port=port)[0] for rank in range(3)
        ]
        assert [worker.exit_code() for worker in workers] == [0] * 3, workers[0].log.read_text()
        return list(workers[-1].losses.values())

    assert run("split", order=True) == pytest.approx(run("whole", order=False), abs=1e-5)
