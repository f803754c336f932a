"""A plan comes out of the environment as it went in, however long its order is."""

from __future__ import annotations

import base64
import lzma

import pytest
from pydantic import ValidationError

from agents.protocol import WorkerPlan, plan_text, read_plan
from agents.worker.causes import WorkerEndError
from agents.worker.settings import read_settings
from scheduler.pipeline.plan import layouts, split_orders
from tests.plans import together
from tests.wire_plans import wire_plan

PLACE = {
    "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "BACE_STAGE": "0",
    "BACE_STAGES": "2",
}  # fmt: skip


def plan(micro_batches: int) -> WorkerPlan:
    return wire_plan(together(layouts.vee(2), split_orders.zb_v(2, micro_batches)), 0)


def test_a_short_plan_is_json_and_a_long_one_is_packed() -> None:
    short, long = plan(4), plan(1024)
    assert plan_text(short) == short.model_dump_json(exclude_defaults=True)
    assert plan_text(long).startswith("xz:")
    assert len(plan_text(long)) < 32768 < len(long.model_dump_json())
    assert [read_plan(plan_text(each)) for each in (short, long)] == [short, long]


def test_a_worker_reads_a_packed_plan() -> None:
    settings = read_settings({**PLACE, "BACE_PLAN": plan_text(plan(1024))})
    assert settings.plan == plan(1024)
    assert settings.rank_plan.stages == (0, 3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("xz:!", "not followed by a packed plan"),
        ("xz:" + base64.b64encode(b"plain").decode(), "not followed by a packed plan"),
        ("xz:" + base64.b64encode(lzma.compress(b"{}")[:-4]).decode(), "cut off"),
        ("xz:" + base64.b64encode(lzma.compress(b" " * 5_000_000)).decode(), "more than 4000000 bytes"),
    ],
)
def test_what_cannot_be_unpacked_ends_the_worker_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(WorkerEndError, match=why):
        read_settings({**PLACE, "BACE_PLAN": text})


def test_what_is_packed_must_be_a_plan() -> None:
    with pytest.raises(ValidationError):
        read_plan("xz:" + base64.b64encode(lzma.compress(b'{"steps": 0}')).decode())
    with pytest.raises(WorkerEndError, match="BACE_PLAN: model"):
        read_settings({**PLACE, "BACE_PLAN": "xz:" + base64.b64encode(lzma.compress(b"{}")).decode()})
