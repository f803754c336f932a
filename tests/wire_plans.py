"""The scheduler's plans in the form that workers are given."""

from __future__ import annotations

from typing import Any

from agents.protocol import WorkerModel, WorkerOrder, WorkerPlan
from agents.worker.executor.from_wire import rank_plan
from agents.worker.executor.rank_plan import RankPlan
from scheduler.pipeline.plan.communication import computations
from scheduler.pipeline.plan.ir import Plan

TINY = WorkerModel(layers=4, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=48, vocab=256, seq_len=16)


def wire_plan(plan: Plan, rank: int, *, messages: bool = True, **changes: Any) -> WorkerPlan:
    """What the worker of `rank` is told; one layer a stage."""
    stages = len(plan.pipeline.stages)
    actions = plan.actions if messages else computations(plan.actions)
    return WorkerPlan(
        **{
            "model": TINY.model_copy(update={"layers": stages}),
            "steps": 2,
            "micro_batch": 2,
            "micro_batches": 1 + max(action.micro_batch for action in plan.actions[rank]),
            "dtype": "fp32",
            "recompute": "none",
            "layers_per_stage": [1] * stages,
            "window": list(plan.caps),
            "order": WorkerOrder(
                stage_ranks=[stage.rank for stage in plan.pipeline.stages],
                actions=[str(action) for action in actions[rank]],
            ),
            "learning_rate": 0.003,
            "seed": 5,
            "checkpoint_uri": "file:///checkpoints",
            "checkpoint_every": 5,
            **changes,
        }
    )


def rank_plans(plan: Plan, **changes: Any) -> list[RankPlan]:
    """What every rank executes."""
    ranks = len(plan.actions)
    return [rank_plan(wire_plan(plan, rank, **changes), rank, ranks) for rank in range(ranks)]
