"""Jobs in every kind of order, as the service places and launches them: real workers learn what strict 1F1B learns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.protocol import WorkerPlan, read_plan
from scheduler.cluster import Cluster, GpuType, Region
from scheduler.evaluate import evaluate, in_its_order
from scheduler.job import Schedule
from scheduler.packing import StageSlots
from scheduler.placement import Cut, Placement, Segment
from scheduler.spec.job import parse_job
from service.launch import Gang, stage_processes
from service.placements import from_document, to_document

pytestmark = pytest.mark.xdist_group("stage-workers")

SAME = 1e-6
MICRO_BATCHES = 6
CLUSTER = Cluster(
    {"g": GpuType("g", 1e9, 1e12, 100.0, 50.0)}, {each: Region(each) for each in ("west", "east")}, {}, {}
)


def placed(gangs: Any, schedule: str, stages: int, **changes: Any) -> list[WorkerPlan]:
    """What the workers of a job are told, its placement once stored and read again."""
    training = {
        "steps": 4,
        "micro_batch": 2,
        "micro_batches": MICRO_BATCHES,
        "dtype": "fp32",
        "recompute": "none",
    }
    document = parse_job(
        {
            "name": "tiny",
            "model": {
                "layers": 6, "hidden": 32, "heads": 4, "kv_heads": 2, "head_dim": 8, "ffn": 48, "vocab": 256,
                "seq_len": 16,
            },
            "training": {**training, "schedule": schedule, **changes.pop("training", {})},
            "parallelism": {"stages": stages, **changes.pop("parallelism", {})},
            "run": {"builtin": "gpt", "learning_rate": 0.003, "seed": 5, **changes.pop("run", {})},
            "checkpoint": {"every_steps": 2},
        }
    )  # fmt: skip
    replicas = int(document.parallelism.data)
    cuts = () if stages == 1 else (Cut("west", "east", 1e6, 0.05),)
    segments = tuple(
        Segment(region, "g", count, replicas)
        for region, count in (("west", stages - 1), ("east", 1))
        if count
    )
    spec = document.to_spec("job-1", "default", 0.0)
    scored = evaluate(spec, CLUSTER, segments, cuts)
    placement = in_its_order(spec, CLUSTER, scored.placement).placement
    stored = from_document(json.loads(json.dumps(to_document(placement))))
    assert stored == placement
    gang = Gang(
        "job-1", "alloc-1", 1, document, stored, slots(stored, replicas), "127.0.0.1", 29500,
        changes.pop("resume_step", 0), (gangs.folder / "checkpoints").as_uri(),
    )  # fmt: skip
    return [read_plan(process.env["BACE_PLAN"]) for process in stage_processes(gang)]


def slots(placement: Placement, replicas: int) -> tuple[StageSlots, ...]:
    return tuple(
        StageSlots(stage, tuple((f"n{stage}", gpu) for gpu in range(replicas)))
        for stage in range(placement.stages)
    )


def losses(gangs: Any, plans: list[WorkerPlan], replicas: int = 1) -> list[float]:
    """Of a gang that trains to its end, as whoever has the last part of the model tells them."""
    port, stages = gangs.free_port(), len(plans) // replicas
    workers = [
        gangs.start(plan, stages, data=replicas, ranks=[rank], port=port)[0]
        for rank, plan in enumerate(plans)
    ]
    assert [worker.exit_code() for worker in workers] == [0] * len(plans), workers[0].log.read_text()
    told = [list(worker.losses.values()) for worker in workers if worker.losses]
    assert len(told) == 1
    return told[0]


ORDERED = [each.value for each in Schedule if each.is_ordered]


@pytest.mark.parametrize("schedule", ORDERED)
def test_every_order_learns_what_1f1b_learns(gangs: Any, schedule: str) -> None:
    expected = losses(gangs, placed(gangs, "1f1b", 3))
    plans = placed(gangs, schedule, 3)
    assert all(plan.order is not None for plan in plans)
    assert losses(gangs, plans) == pytest.approx(expected, abs=SAME)
    assert expected[-1] < expected[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [(("zb-v", 3), ("generated", 2)), (("generated", 2), ("interleaved", 3)), (("1f1b", 2), ("v-half", 1))],
)
def test_a_job_goes_on_with_other_stages_and_another_order(
    gangs: Any, before: tuple[str, int], after: tuple[str, int]
) -> None:
    expected = losses(gangs, placed(gangs, "1f1b", 2, training={"steps": 6}))
    assert losses(gangs, placed(gangs, *before)) == pytest.approx(expected[:4], abs=SAME)
    resumed = placed(gangs, *after, training={"steps": 6}, resume_step=4)
    assert losses(gangs, resumed) == pytest.approx(expected[4:], abs=SAME)


@pytest.mark.parametrize("schedule", ["zb-v", "generated"])
def test_replicas_run_an_order_as_well(gangs: Any, schedule: str) -> None:
    of = {"parallelism": {"data": 2}}
    expected = losses(gangs, placed(gangs, "1f1b", 3, **of), replicas=2)
    assert losses(gangs, placed(gangs, schedule, 3, **of), replicas=2) == pytest.approx(expected, abs=SAME)


@pytest.mark.parametrize(
    "changes", [{"run": {"ready_first": True}}, {"parallelism": {"codec": {"mapl": {"rank": 8}}}}]
)
def test_a_generated_order_goes_with_what_a_line_may_have(gangs: Any, changes: dict[str, Any]) -> None:
    expected = losses(gangs, placed(gangs, "1f1b", 2, **changes))
    assert losses(gangs, placed(gangs, "generated", 2, **changes)) == pytest.approx(expected, abs=SAME)


def test_two_parts_a_stage_clip_over_all_of_them(gangs: Any) -> None:
    clipped = {"run": {"clip_norm": 0.2}}
    expected = losses(gangs, placed(gangs, "1f1b", 3, **clipped))
    assert losses(gangs, placed(gangs, "zb-v", 3, **clipped)) == pytest.approx(expected, abs=SAME)
