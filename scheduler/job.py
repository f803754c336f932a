"""A training job as the planner sees it, and the life of a job as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan.ir import LowRank


class Recompute(StrEnum):
    """What of the activations is kept for the backward pass (Korthikanti et al., arXiv 2205.05198)."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Schedule(StrEnum):
    """Order of forwards and backwards in an iteration. A job asks for one of `ASKED_SCHEDULES`."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    SLACK_1F1B = "slack-1f1b"
    AUTO = "auto"  # the fastest of all that fit; what it comes to on a placement is one of the others
    ZB_H1 = "zb-h1"
    LAGGED_1F1B = "lagged-1f1b"  # a window whose gradients of weights run some micro-batches behind
    INTERLEAVED = "interleaved"
    LOOPED_BFS = "looped-bfs"
    ZB_V = "zb-v"
    V_HALF = "v-half"
    DUALPIPEV = "dualpipev"
    HANAYO = "hanayo"
    GENERATED = "generated"  # by list scheduling, for the placement at hand

    @property
    def looks_for_window(self) -> bool:
        """Whether a placement gets what is fastest there and fits, so that no cut makes every micro-batch wait."""
        return self in (Schedule.SLACK_1F1B, Schedule.AUTO, Schedule.GENERATED)

    @property
    def parts(self) -> int:
        """Parts of the model on each rank: two equal ones where the pipeline passes every rank twice."""
        return (
            2
            if self.loops or self in (Schedule.ZB_V, Schedule.V_HALF, Schedule.DUALPIPEV, Schedule.HANAYO)
            else 1
        )

    @property
    def loops(self) -> bool:
        """Whether the second part of the first rank follows the first part of the last one."""
        return self in (Schedule.INTERLEAVED, Schedule.LOOPED_BFS)

    @property
    def is_ordered(self) -> bool:
        """Whether workers have to be told an order: no window says it. They must be able to."""
        return self.parts > 1 or self in (Schedule.ZB_H1, Schedule.GENERATED)

    @property
    def splits(self) -> bool:
        """Whether it cuts every backward, or whichever it likes, in two parts."""
        return self.is_ordered and not self.loops and self is not Schedule.HANAYO


ASKED_SCHEDULES = tuple(each for each in Schedule if each is not Schedule.LAGGED_1F1B)


LIMITS = ("deadline", "budget_usd", "max_wait")
"""What a job file may ask for and not every policy plans by."""


class Elasticity(StrEnum):
    """What may be done to a running job: nothing; stop and start again; start again with other stages."""

    NONE = "none"
    RESTART = "restart"
    RESIZE = "resize"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder-only transformer. `ffn` is the width of one MLP (one expert), `gated_mlp` has three matrices.

    `learned_positions` counts a position table of `seq_len` rows (GPT-3). A mixture of experts has
    `experts` > 1 with `experts_per_token` active, `shared_experts` always active, and `dense_layers` leading
    layers with a plain MLP of width `dense_ffn`. `attention_parameters`, where above 0, are the weights of one
    layer's attention that do not follow from its heads (multi-head latent attention).
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gated_mlp: bool
    vocab: int
    seq_len: int
    tied_embeddings: bool = False
    learned_positions: bool = False
    experts: int = 1
    experts_per_token: int = 1
    shared_experts: int = 0
    dense_layers: int = 0
    dense_ffn: int = 0
    attention_parameters: int = 0

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "seq_len"):
            value = getattr(self, name)
            if value < 1:
                raise InvalidValueError(f"model.{name}", value, "a whole number of at least 1")
        if self.heads % self.kv_heads:
            raise InvalidValueError("model.kv_heads", self.kv_heads, f"a divisor of heads = {self.heads}")
        if not 1 <= self.experts_per_token <= self.experts:
            raise InvalidValueError(
                "model.experts_per_token", self.experts_per_token, f"1 … experts = {self.experts}"
            )


@dataclass(frozen=True, slots=True)
class WeightVersions:
    """What a rule of updates holds beside the weights, bytes a parameter: all the time, and for each micro-batch in
    flight; and how many micro-batches of a stage may be in flight with that (None: any).
    """

    held_bytes: float = 0.0
    in_flight_bytes: float = 0.0
    most_in_flight: int | None = None


WEIGHTS_ALONE = WeightVersions()


@dataclass(frozen=True, slots=True)
class Training:
    """How one iteration is cut up. An iteration is `micro_batches` micro-batches of `micro_batch` sequences.

    `splits_backward` tells whether the job's workers can be told an order, and with it to run a backward in two parts:
    one that asked for `auto` may then be given such an order. `update_every` is the micro-batches an update of a rule
    that updates within an iteration; None: once, at its end. `builtin_layers` tells that the layers are those of the
    built-in worker, which do not keep for their backward what the published ones do. With `ready_first` its workers
    keep to no order, but to what may be in flight.
    """

    steps: int
    micro_batch: int
    micro_batches: int
    bytes_per_element: int = 2
    schedule: Schedule = Schedule.ONE_F_ONE_B
    recompute: Recompute = Recompute.SELECTIVE
    splits_backward: bool = False
    versions: WeightVersions = WEIGHTS_ALONE
    update_every: int | None = None
    builtin_layers: bool = False
    ready_first: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "micro_batch", "micro_batches", "bytes_per_element"):
            value = getattr(self, name)
            if value < 1:
                raise InvalidValueError(f"training.{name}", value, "a whole number of at least 1")


@dataclass(frozen=True, slots=True)
class Parallelism:
    """`stages_min`/`stages_max` bound K; None leaves it to memory and K*. `named_stages` is what the user asked for.

    A stage runs on tensor × data GPUs; `data` may be a fraction in a replay (15 GPUs = 8 × 1.875). `codec` is that of
    the boundaries that cross regions.
    """

    stages_min: int | None = None
    stages_max: int | None = None
    named_stages: int | None = None
    tensor: int = 1
    data: float = 1
    codec: LowRank | None = None

    def __post_init__(self) -> None:
        if self.tensor < 1:
            raise InvalidValueError("parallelism.tensor", self.tensor, "a whole number of at least 1")
        if not self.data > 0:
            raise InvalidValueError("parallelism.data", self.data, "a number above 0")

    @property
    def gpus_per_stage(self) -> int:
        """GPUs of one stage: tensor × data, in whole GPUs."""
        return round(self.tensor * self.data)


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """Where a job may run. `regions` and `exclude` are shell-style globs; an empty `regions` means any. The chain
    begins in `home`, where that is given."""

    regions: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_regions: int | None = None
    home: str | None = None


@dataclass(frozen=True, slots=True)
class DataSet:
    """What the first stage reads, and the regions that have a copy; none named: it can be read from anywhere alike."""

    size_bytes: float
    regions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasuredProfile:
    """Figures measured by the user, used in the place of the formulas.

    For each GPU type: seconds of the forward and backward of the whole model for one micro-batch on one GPU
    group, cut into stages by layers. `activation_bytes` cross a stage boundary, per direction, all replicas
    together; `stage_memory_bytes` is the weights and optimizer of the whole model and `inflight_bytes` the
    activations of the whole model per micro-batch in flight, both over all tensor ranks of one replica.
    """

    forward_s: Mapping[str, float]
    backward_s: Mapping[str, float]
    activation_bytes: float
    stage_memory_bytes: float
    inflight_bytes: float


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What was asked for, complete: the edge has filled every default. Times are epoch seconds (UTC)."""

    job_id: str
    name: str
    project: str
    submit_s: float
    model: ModelShape
    training: Training
    parallelism: Parallelism = field(default_factory=Parallelism)
    placement: PlacementRule = field(default_factory=PlacementRule)
    priority: int = 50
    elasticity: Elasticity = Elasticity.NONE
    max_wait_s: float | None = None
    """How long it may be kept waiting, seconds."""
    deadline_s: float | None = None
    budget_usd: float | None = None
    data: tuple[DataSet, ...] = ()
    profile: MeasuredProfile | None = None

    def __post_init__(self) -> None:
        codec, hidden = self.parallelism.codec, self.model.hidden
        if codec is not None and not 1 <= codec.rank <= hidden:
            raise InvalidValueError("parallelism.codec.rank", codec.rank, f"from 1 to hidden = {hidden}")


class JobState(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"  # accepted; waits for a placement
    STARTING = "starting"  # committed to an allocation; not every stage has reported ready
    RUNNING = "running"  # every stage of the gang is up
    STOPPING = "stopping"  # its stages are told to stop (cancel, lost node, failure); GPUs still held
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"  # can never run as it was asked for


JOB_TRANSITIONS: Mapping[JobState, frozenset[JobState]] = MappingProxyType(
    {
        JobState.QUEUED: frozenset(
            {JobState.STARTING, JobState.CANCELLED, JobState.REJECTED, JobState.FAILED}
        ),
        JobState.STARTING: frozenset({JobState.RUNNING, JobState.STOPPING}),
        JobState.RUNNING: frozenset({JobState.STOPPING, JobState.SUCCEEDED}),
        JobState.STOPPING: frozenset(
            {JobState.QUEUED, JobState.CANCELLED, JobState.FAILED, JobState.SUCCEEDED}
        ),
        JobState.SUCCEEDED: frozenset(),
        JobState.FAILED: frozenset(),
        JobState.CANCELLED: frozenset(),
        JobState.REJECTED: frozenset({JobState.QUEUED}),  # the cluster grew: it can run after all
    }
)
"""Every legal move. Whatever is not in this table does not happen."""

FINAL_JOB_STATES = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.REJECTED})
LIVE_JOB_STATES = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})
"""States in which a job holds GPUs and bandwidth."""
