"""From a placement and a job to what its agents start: one StageProcess a GPU, with its place in the environment.

RANK = (stage × data + data_rank) × tensor + tensor_rank, Megatron's usual order. The built-in worker gets its whole
plan as `BACE_PLAN`; a user's own command gets the same environment without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from operator import add
from types import MappingProxyType
from typing import Literal

from agents.protocol import (
    StageProcess,
    StopProtocol,
    WorkerCodec,
    WorkerModel,
    WorkerOrder,
    WorkerPlan,
    WorkerRateSchedule,
    plan_text,
)
from scheduler.job import Schedule
from scheduler.packing import Slot, StageSlots
from scheduler.pipeline.plan.communication import with_messages
from scheduler.pipeline.plan.ir import Order, StageCost, Worker
from scheduler.pipeline.plan.laid_out import layout_of
from scheduler.pipeline.plan.order_text import read
from scheduler.pipeline.plan.passes import place
from scheduler.pipeline.plan.split_orders import lagged
from scheduler.placement import Placement
from scheduler.profile import split_layers
from scheduler.spec.job import JobDocument
from scheduler.spec.sections import RateScheduleSection

BUILTIN_ARGV = ("{python}", "-m", "agents.worker")

_RULES: Mapping[str, Literal["current", "double-buffered", "predicted", "stashed"]] = MappingProxyType(
    {"paci": "current", "2bw": "double-buffered", "prediction": "predicted", "stashing": "stashed"}
)
"""The rules of a job's `updates` as workers know them."""


@dataclass(frozen=True, slots=True)
class Gang:
    """What is to be launched together: one generation of a job on the slots of its placement."""

    job_id: str
    allocation_id: str
    generation: int
    document: JobDocument
    placement: Placement
    slots: tuple[StageSlots, ...]
    master_address: str
    master_port: int
    resume_step: int
    """The checkpoint to go on from; 0: from the beginning."""
    checkpoint_uri: str


def default_checkpoint_uri(checkpoint_root: str, project: str, job_id: str) -> str:
    """Where a job's checkpoints go if it names no place."""
    return f"{checkpoint_root.rstrip('/')}/{project}/{job_id}"


def stage_processes(gang: Gang) -> tuple[StageProcess, ...]:
    """The processes in order of rank."""
    document = gang.document
    ranked = [(stage.stage, slot) for stage in gang.slots for slot in stage.slots]
    places = _places_on_nodes([slot for _, slot in ranked])
    shared = _shared_environment(gang, len(ranked))
    builtin = document.is_builtin
    plans = {
        stage.stage: {"BACE_PLAN": plan_text(worker_plan(gang, stage.stage))} if builtin else {}
        for stage in gang.slots
    }
    return tuple(
        StageProcess(
            key=f"{gang.allocation_id}/{rank}",
            job_id=gang.job_id,
            allocation_id=gang.allocation_id,
            generation=gang.generation,
            node_id=slot[0],
            gpu_indices=[slot[1]],
            rank=rank,
            stage=stage,
            argv=list(BUILTIN_ARGV) if builtin else list(document.run.command or ()),
            env={
                **(document.run.env or {}),
                **shared,
                **plans[stage],
                **_own_environment(gang, rank, stage),
                "LOCAL_RANK": str(places[slot][0]),
                "LOCAL_WORLD_SIZE": str(places[slot][1]),
            },
            secrets=dict(document.run.secrets or {}),
            stop=StopProtocol(signal=document.stop.signal, grace_s=document.stop.grace),
        )
        for rank, (stage, slot) in enumerate(ranked)
    )


def worker_plan(gang: Gang, stage: int) -> WorkerPlan:
    """The plan of a gang as the built-in worker of a stage executes it.

    Where two parts of the model stand on every stage of the placement, the worker calls each part a stage.
    """
    document, model = gang.document, gang.document.model.shape()
    training, placement = document.training, gang.placement
    updates, rates = document.run.updates, document.run.rate_schedule or RateScheduleSection()
    return WorkerPlan(
        model=WorkerModel(
            layers=model.layers,
            hidden=model.hidden,
            heads=model.heads,
            kv_heads=model.kv_heads,
            head_dim=model.head_dim,
            ffn=model.ffn,
            vocab=model.vocab,
            seq_len=model.seq_len,
        ),
        steps=training.steps,
        micro_batch=training.micro_batch,
        micro_batches=training.micro_batches,
        # The wire has the types that the worker can train in; the job was refused before if it names another.
        dtype="fp32" if training.dtype == "fp32" else "bf16",
        recompute=training.recompute.value,
        layers_per_stage=list(split_layers(model, placement.stages * placement.schedule.parts)),
        # A micro-batch is in flight until the gradients of its weights are done.
        window=list(map(add, placement.window, placement.lag)) if placement.lag else list(placement.window),
        order=_order(placement, stage, training.micro_batches),
        binding="hint" if document.run.ready_first else "strict",
        weight_rule=_RULES[updates.rule] if updates else "flush",
        update_every=updates.every if updates else 1,
        error_feedback=updates.error_feedback if updates else 0.0,
        optimizer=document.optimizer,
        learning_rate=document.learning_rate,
        rate_schedule=WorkerRateSchedule(
            warmup_steps=rates.warmup_steps, decay=rates.decay, final=rates.final
        ),
        clip_norm=document.run.clip_norm,
        seed=document.seed,
        codec=_codec(document, placement),
        corpus=document.run.corpus,
        checkpoint_uri=gang.checkpoint_uri,
        checkpoint_every=document.checkpoint.every_steps,
        checkpoint_keep=document.checkpoint.keep,
        resume_step=gang.resume_step,
    )


def _codec(document: JobDocument, placement: Placement) -> WorkerCodec | None:
    """The job's codec, on the boundaries that cross regions; none if nothing does."""
    regions = regions_of_stages(placement)
    crossings = [stage for stage, (here, there) in enumerate(pairwise(regions)) if here != there]
    codec = document.parallelism.codec
    return (
        WorkerCodec(rank=codec.mapl.rank, boundaries=crossings) if codec is not None and crossings else None
    )


def _order(placement: Placement, stage: int, micro_batches: int) -> WorkerOrder | None:
    """What a stage does where its window does not say it: what was stored with the placement, or the forwards and
    gradients of a window with those of weights behind them."""
    if not placement.lag and not placement.order:
        return None
    ranks, actions = _actions(
        placement.schedule, placement.window, placement.lag, placement.order, micro_batches
    )
    return WorkerOrder(stage_ranks=list(ranks), actions=[str(each) for each in actions[stage]])


@lru_cache(maxsize=64)
def _actions(
    schedule: Schedule,
    window: tuple[int, ...],
    lag: tuple[int, ...],
    text: tuple[str, ...],
    micro_batches: int,
) -> tuple[tuple[int, ...], Order]:
    """The rank of every stage as workers count them, and what every rank does, with its messages."""
    layout = layout_of(schedule, len(text or lag))
    order = read(text, layout) if text else lagged(window, lag, micro_batches)
    free = [StageCost(0.0, 0.0, 0.0)] * layout.stages
    pipeline = place(layout, free, [Worker("anywhere")] * layout.ranks)
    (ranks,) = layout.chains
    return ranks, with_messages(pipeline, order)


def regions_of_stages(placement: Placement) -> tuple[str, ...]:
    """The region of every stage, in pipeline order."""
    return tuple(segment.region for segment in placement.segments for _ in range(segment.stages))


def choose_port(first: int, last: int, taken: frozenset[int], used_last: int | None) -> int | None:
    """A rendezvous port of [first, last] that is not taken: the next one after the last that was used.

    Going round makes a retry after `port-taken` try another one. None if all are taken.
    """
    ports = list(range(first, last + 1))
    start = 0 if used_last is None or used_last not in ports else used_last - first + 1
    return next((port for port in ports[start:] + ports[:start] if port not in taken), None)


def _places_on_nodes(slots: Sequence[Slot]) -> Mapping[Slot, tuple[int, int]]:
    """For each slot its number among those of its node, in order of rank, and how many there are."""
    on_node: dict[str, list[Slot]] = {}
    for slot in slots:
        on_node.setdefault(slot[0], []).append(slot)
    return {slot: (index, len(mine)) for mine in on_node.values() for index, slot in enumerate(mine)}


def _shared_environment(gang: Gang, world_size: int) -> dict[str, str]:
    document = gang.document
    shared = {
        "WORLD_SIZE": world_size,
        "MASTER_ADDR": gang.master_address,
        "MASTER_PORT": gang.master_port,
        "BACE_JOB_ID": gang.job_id,
        "BACE_JOB_NAME": document.name,
        "BACE_ALLOCATION_ID": gang.allocation_id,
        "BACE_GENERATION": gang.generation,
        "BACE_STAGES": gang.placement.stages,
        "BACE_TENSOR_SIZE": document.parallelism.tensor,
        "BACE_DATA_SIZE": int(document.parallelism.data),
        "BACE_REGIONS": ",".join(regions_of_stages(gang.placement)),
        "BACE_WINDOW": ",".join(map(str, gang.placement.window)),
        "BACE_SCHEDULE": gang.placement.schedule.value,
        "BACE_STEPS": document.training.steps,
        "BACE_RESUME_STEP": gang.resume_step,
        "BACE_CHECKPOINT_URI": gang.checkpoint_uri,
        "BACE_CHECKPOINT_EVERY": document.checkpoint.every_steps,
        "BACE_CHECKPOINT_KEEP": document.checkpoint.keep,
    }
    return {name: str(value) for name, value in shared.items()}


def _own_environment(gang: Gang, rank: int, stage: int) -> dict[str, str]:
    tensor, data = gang.document.parallelism.tensor, int(gang.document.parallelism.data)
    return {
        "RANK": str(rank),
        "BACE_STAGE": str(stage),
        "BACE_REGION": regions_of_stages(gang.placement)[stage],
        "BACE_TENSOR_RANK": str(rank % tensor),
        "BACE_DATA_RANK": str(rank // tensor % data),
    }
