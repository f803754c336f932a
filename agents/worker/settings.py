"""The place of this process in its gang, and the plan it executes: read from the environment, checked whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from agents.protocol import WorkerPlan, read_plan
from agents.worker.causes import Cause, WorkerEndError
from agents.worker.checkpoint.address import open_store
from agents.worker.checkpoint.store import Store
from agents.worker.executor.from_wire import PlanError, rank_plan
from agents.worker.executor.rank_plan import RankPlan

BYTE_VALUES = 256


@dataclass(frozen=True, slots=True)
class Place:
    """One rank of a pipeline of `stages` stages with `data_size` replicas: rank = stage × data_size + data_rank."""

    rank: int
    world_size: int
    stage: int
    stages: int
    data_rank: int
    data_size: int
    master_address: str
    master_port: int
    allocation_id: str
    device: str
    """`cpu` or `cuda` (the agent shows each process its own GPU as cuda:0)."""

    @property
    def leads(self) -> bool:
        """Whether this is rank 0: it hosts the rendezvous, decides when to stop and publishes checkpoints."""
        return self.rank == 0

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a worker is told."""

    place: Place
    plan: WorkerPlan
    rank_plan: RankPlan
    """Of `plan`, what this rank computes in which order."""
    checkpoints: Store
    rendezvous_timeout_s: float
    peer_timeout_s: float


def read_settings(environ: Mapping[str, str]) -> Settings:
    """The settings in `environ`.

    Raises:
        WorkerEndError: `invalid-plan`, naming the variable or field, its value, and what would be right;
            `checkpoint-unwritable` where this node lacks what opens the checkpoints.
    """
    try:
        plan = read_plan(_text(environ, "BACE_PLAN"))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "document"
        raise _invalid(f"BACE_PLAN: {field}: {first['msg']}, got {first['input']!r}") from error
    except ValueError as error:
        raise _invalid(f"BACE_PLAN: {error}") from error
    place = _read_place(environ)
    _check_plan(plan)
    _check_order_of_averages(plan, place)
    return Settings(
        place=place,
        plan=plan,
        rank_plan=_rank_plan(plan, place),
        checkpoints=open_store(plan.checkpoint_uri),
        rendezvous_timeout_s=_seconds(environ, "BACE_RENDEZVOUS_TIMEOUT", 120.0),
        peer_timeout_s=_seconds(environ, "BACE_PEER_TIMEOUT", 600.0),
    )


def _read_place(environ: Mapping[str, str]) -> Place:
    tensor_size = _count(environ, "BACE_TENSOR_SIZE", "1")
    if tensor_size != 1:
        raise _invalid(
            f"BACE_TENSOR_SIZE is {tensor_size}, but the built-in worker has no tensor parallelism: "
            "submit the job with parallelism.tensor 1, or run a command of your own"
        )
    place = Place(
        rank=_count(environ, "RANK"),
        world_size=_count(environ, "WORLD_SIZE"),
        stage=_count(environ, "BACE_STAGE"),
        stages=_count(environ, "BACE_STAGES"),
        data_rank=_count(environ, "BACE_DATA_RANK", "0"),
        data_size=_count(environ, "BACE_DATA_SIZE", "1"),
        master_address=_text(environ, "MASTER_ADDR"),
        master_port=_count(environ, "MASTER_PORT"),
        allocation_id=environ.get("BACE_ALLOCATION_ID", "alone"),
        device=environ.get("BACE_DEVICE", "cpu"),
    )
    if place.world_size != place.stages * place.data_size:
        raise _invalid(
            f"WORLD_SIZE is {place.world_size}, but BACE_STAGES × BACE_DATA_SIZE is "
            f"{place.stages} × {place.data_size}"
        )
    expected = place.stage * place.data_size + place.data_rank
    if place.rank != expected or place.rank >= place.world_size:
        raise _invalid(
            f"RANK is {place.rank} of {place.world_size}, but BACE_STAGE × BACE_DATA_SIZE + BACE_DATA_RANK "
            f"is {expected}"
        )
    if place.device not in ("cpu", "cuda"):
        raise _invalid(f"BACE_DEVICE is {place.device!r}: it must be cpu or cuda")
    return place


def _rank_plan(plan: WorkerPlan, place: Place) -> RankPlan:
    try:
        return rank_plan(plan, place.stage, place.stages)
    except PlanError as error:
        raise _invalid(f"BACE_PLAN: {error}") from error


def _check_plan(plan: WorkerPlan) -> None:
    """What the fields of a plan must be to one another."""
    model, layers = plan.model, plan.layers_per_stage
    if sum(layers) != model.layers or min(layers) < 1:
        raise _invalid(
            f"layers_per_stage is {layers}: it must hold the model's {model.layers} layers, "
            "at least one a stage"
        )
    _check_codec(plan)
    if plan.clip_norm is not None and plan.weight_rule != "flush":
        raise _invalid(
            f"clip_norm is {plan.clip_norm:g} with weight_rule {plan.weight_rule}: no step has the gradients of all "
            "stages, whose norm it would be; leave it out, or use flush"
        )
    if model.heads % model.kv_heads:
        raise _invalid(f"model.heads is {model.heads}: it must be a multiple of kv_heads {model.kv_heads}")
    if model.head_dim % 2:
        raise _invalid(f"model.head_dim is {model.head_dim}: rotary embeddings need an even one")
    if model.vocab < BYTE_VALUES:
        raise _invalid(
            f"model.vocab is {model.vocab}: bytes are the tokens, so it must be at least {BYTE_VALUES}"
        )


def _check_order_of_averages(plan: WorkerPlan, place: Place) -> None:
    """Replicas of a rank average the gradients of an update together, so they must come to their updates in one order.

    An order that is kept gives them one. Of one stage a rank, updates come one after the other whatever runs first.
    """
    order = plan.order
    if (
        plan.binding == "hint"
        and plan.weight_rule != "flush"
        and place.data_size > 1
        and order is not None
        and len(set(order.stage_ranks)) < len(order.stage_ranks)
    ):
        raise _invalid(
            f"binding is hint with weight_rule {plan.weight_rule}, BACE_DATA_SIZE {place.data_size} and "
            f"order.stage_ranks {order.stage_ranks}: replicas would average the updates of a rank's stages in "
            "orders of their own, and mix them up or wait for one another for ever; use binding strict, one stage "
            "a rank, weight_rule flush, or one replica"
        )


def _check_codec(plan: WorkerPlan) -> None:
    codec, stages = plan.codec, len(plan.layers_per_stage)
    if codec is None:
        return
    if codec.rank > plan.model.hidden:
        raise _invalid(
            f"codec.rank is {codec.rank}: it must not be above the model's hidden {plan.model.hidden}"
        )
    if codec.boundaries != sorted({each for each in codec.boundaries if each < stages - 1}):
        raise _invalid(
            f"codec.boundaries is {codec.boundaries}: it must hold stages with another behind them, "
            f"each once and ascending, of the {stages}"
        )
    if plan.order is not None and plan.order.stage_ranks != list(range(stages)):
        raise _invalid(
            f"codec with order.stage_ranks {plan.order.stage_ranks}: a codec's ends are on neighbouring ranks, "
            "so stage s must be on rank s"
        )


def _text(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise _invalid(f"{name} is not set: a worker is started by an agent, which sets it")
    return value


def _count(environ: Mapping[str, str], name: str, default: str = "") -> int:
    value = environ.get(name, default)
    if not (value.isascii() and value.isdigit()):
        raise _invalid(f"{name} is {value!r}: it must be a whole number, 0 or more")
    return int(value)


def _seconds(environ: Mapping[str, str], name: str, default_s: float) -> float:
    value = environ.get(name)
    if value is None:
        return default_s
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e7:
        raise _invalid(f"{name} is {value!r}: it must be a number of seconds above 0")
    return seconds


def _invalid(detail: str) -> WorkerEndError:
    return WorkerEndError(Cause.INVALID_PLAN, detail)
