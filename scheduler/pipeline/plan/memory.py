"""What a plan holds: micro-batches in flight of each stage, bytes of each rank. Both follow from the order alone."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan.ir import Op, Order, Pipeline, Plan


class OutOfMemoryError(InvalidValueError):
    """A rank that cannot hold what its order asks of it; `stage` is the one whose forward asks the most."""

    code = "plan_out_of_memory"

    def __init__(self, stage: int, rank: int, needed_bytes: float, memory_bytes: float) -> None:
        super().__init__(
            "plan.actions",
            f"stage {stage} on rank {rank} comes to {needed_bytes:.0f} bytes",
            f"at most the {memory_bytes:.0f} bytes of that worker",
        )
        self.stage, self.rank = stage, rank
        self.needed_bytes, self.memory_bytes = needed_bytes, memory_bytes


def peaks_in_flight(pipeline: Pipeline, order: Order) -> tuple[int, ...]:
    """For each stage the most micro-batches between the start of F and the end of B or W."""
    held, peak = [0] * len(pipeline.stages), [0] * len(pipeline.stages)
    for actions in order:
        for stage, op, _ in actions:
            if op is Op.FORWARD:
                held[stage] += 1
                peak[stage] = max(peak[stage], held[stage])
            elif op is Op.BACKWARD or op is Op.WEIGHT_GRADIENT:
                held[stage] -= 1
    return tuple(peak)


def peak_bytes(plan: Plan) -> tuple[float, ...]:
    """For each rank the most memory that it ever holds, bytes."""
    return tuple(max(held for held, _ in _held(plan, rank)) for rank in range(len(plan.actions)))


def require_memory(plan: Plan) -> None:
    """Raise OutOfMemoryError for the first rank that cannot hold its stages and what is in flight on them."""
    for rank, worker in enumerate(plan.pipeline.workers):
        most, stage = max(_held(plan, rank))
        if most > worker.memory_bytes:
            raise OutOfMemoryError(stage, rank, most, worker.memory_bytes)


def _held(plan: Plan, rank: int) -> Iterator[tuple[float, int]]:
    """(bytes, stage) of a rank: with its weights alone, then after every forward."""
    costs = [stage.cost for stage in plan.pipeline.stages]
    stages = [stage for stage, placed in enumerate(plan.pipeline.stages) if placed.rank == rank]
    weights = 0.0
    for stage in stages:
        further = plan.weight_rule.versions(plan.caps[stage]) - 1
        weights += costs[stage].weight_bytes + further * costs[stage].version_bytes
    yield weights, stages[0] if stages else 0
    flying, pending = dict.fromkeys(stages, 0), dict.fromkeys(stages, 0)
    for stage, op, _ in plan.actions[rank]:
        match op:
            case Op.FORWARD:
                flying[stage] += 1
                # Whole counts times bytes: sums of many bytes up and down would not come back to what they were.
                activations = sum(
                    flying[each] * costs[each].inflight_bytes + pending[each] * costs[each].pending_bytes
                    for each in stages
                )
                yield weights + activations, stage
            case Op.BACKWARD:
                flying[stage] -= 1
            case Op.INPUT_GRADIENT:
                flying[stage] -= 1
                pending[stage] += 1
            case Op.WEIGHT_GRADIENT:
                pending[stage] -= 1
