"""The sections of a job file beside its model: each is one mapping of design's job contract."""

from __future__ import annotations

import math
import re
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema

from scheduler.job import ASKED_SCHEDULES, MeasuredProfile, Recompute, Schedule, WeightVersions
from scheduler.pipeline.plan.ir import LowRank
from scheduler.spec.fields import (
    Argument,
    Bytes,
    Duration,
    FilePath,
    Flag,
    GpuName,
    PositiveBytes,
    RegionGlob,
    RegionName,
    Section,
    Uri,
    number,
    refuse,
    whole,
)

MAX_STAGES = 1024

BYTES_PER_ELEMENT = {"bf16": 2, "fp16": 2, "fp32": 4}

_RANGE = re.compile(r"([0-9]{1,4})\.\.([0-9]{1,4})")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_REFERENCE = re.compile(r"[a-z][a-z0-9+-]{0,30}:[^\s]{1,1024}")
RESERVED_VARIABLES = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
)


def _stages(value: object) -> str | int:
    expected = f"auto, a whole number like 8, or a range like 4..16, within 1 … {MAX_STAGES}"
    if value == "auto":
        return "auto"
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_STAGES:
        return value
    match = _RANGE.fullmatch(value) if isinstance(value, str) else None
    if match and 1 <= int(match[1]) <= int(match[2]) <= MAX_STAGES:
        return f"{int(match[1])}..{int(match[2])}"
    raise refuse(expected)


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise refuse("a variable name of letters, digits and _")
    if name in RESERVED_VARIABLES or name.startswith("BACE_"):
        raise refuse("another name: the agent sets this variable itself")
    return name


def _reference(value: object) -> str:
    if not isinstance(value, str) or not _REFERENCE.fullmatch(value) or ".." in value:
        raise refuse("a reference such as file:NAME or env:NAME, never the secret itself")
    return value


def _schedule(value: object) -> object:
    if value not in ASKED_SCHEDULES:
        raise refuse(f"one of {', '.join(ASKED_SCHEDULES)}")
    return value


AskedSchedule = Annotated[
    Schedule,
    BeforeValidator(_schedule),
    WithJsonSchema({"type": "string", "enum": [each.value for each in ASKED_SCHEDULES]}),
]
Stages = Annotated[
    str | int,
    PlainValidator(_stages),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^(auto|[0-9]{1,4}\.\.[0-9]{1,4})$"},
                {"type": "integer", "minimum": 1, "maximum": MAX_STAGES},
            ],
            "examples": ["auto", 8, "4..16"],
        }
    ),
]
Variable = Annotated[
    str, AfterValidator(_variable), WithJsonSchema({"type": "string", "pattern": f"^{_VARIABLE.pattern}$"})
]
Reference = Annotated[
    str,
    PlainValidator(_reference),
    WithJsonSchema({"type": "string", "pattern": f"^{_REFERENCE.pattern}$", "examples": ["env:HF_TOKEN"]}),
]


class TrainingSection(Section):
    """How long and in which pieces the job trains."""

    steps: Annotated[int, whole(1, 1_000_000_000)]
    micro_batch: Annotated[int, whole(1, 65_536)] = 1
    micro_batches: Annotated[int, whole(1, 65_536)] = 8
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    schedule: AskedSchedule = Schedule.ONE_F_ONE_B
    recompute: Recompute = Recompute.SELECTIVE


class MaplSection(Section):
    """A low-rank codec that is learned with the model: `rank` numbers a token."""

    rank: Annotated[int, whole(1, 65_536)]


class CodecSection(Section):
    """How boundaries that cross regions are compressed: it changes what is learned, so the owner alone sets it."""

    mapl: MaplSection

    def low_rank(self) -> LowRank:
        """The codec as the planner takes it."""
        return LowRank(self.mapl.rank)


class ParallelismSection(Section):
    """Stages of the pipeline, and the tensor × data GPUs of each. `data` may be a fraction in a replay only."""

    stages: Stages = "auto"
    tensor: Annotated[int, whole(1, 1024)] = 1
    data: Annotated[float, number(above=0, at_most=65_536)] = 1.0
    codec: CodecSection | None = None

    def bounds(self) -> tuple[int | None, int | None]:
        """The least and the most stages that the job names; None where memory and K* decide."""
        if isinstance(self.stages, int):
            return self.stages, self.stages
        if self.stages == "auto":
            return None, None
        low, _, high = self.stages.partition("..")
        return int(low), int(high)


class PlacementSection(Section):
    """Where the job may run: globs over region names; `home` is where its first stage stands."""

    regions: Annotated[list[RegionGlob], Field(max_length=64)] = Field(default_factory=list)
    exclude: Annotated[list[RegionGlob], Field(max_length=64)] = Field(default_factory=list)
    max_regions: Annotated[int, whole(1, 1024)] | None = None
    home: RegionName | None = None

    def allows(self, region: str) -> bool:
        """Whether the globs let the job into a region."""
        return (not self.regions or any(fnmatchcase(region, glob) for glob in self.regions)) and not any(
            fnmatchcase(region, glob) for glob in self.exclude
        )


class DataSection(Section):
    """What the first stage reads, and the regions that have a copy; none named: it is read from anywhere alike."""

    uri: Uri
    size: PositiveBytes
    regions: Annotated[list[RegionName], Field(max_length=64)] = Field(default_factory=list)


class CheckpointSection(Section):
    """How often the job writes a checkpoint, where (by default under the server's checkpoint root), and what stays."""

    every_steps: Annotated[int, whole(1, 1_000_000_000)] = 100
    keep: Annotated[int, whole(1, 1000)] = 2
    """Complete checkpoints; older ones are removed."""
    uri: Uri | None = None


class StopSection(Section):
    """How a worker is asked to stop, and how long it may take."""

    signal: Literal["TERM", "INT", "USR1", "USR2"] = "TERM"
    grace: Duration = 30.0


class RateScheduleSection(Section):
    """How the learning rate moves: up evenly over `warmup_steps`, then to `final` of itself at the last step."""

    warmup_steps: Annotated[int, whole(0, 1_000_000_000)] = 0
    decay: Literal["constant", "linear", "cosine"] = "constant"
    final: Annotated[float, number(at_least=0, at_most=1)] = 0.0


class UpdatesSection(Section):
    """When a stage changes its weights within an iteration; it changes what is learned (docs/asynchrony.md)."""

    rule: Literal["paci", "2bw", "prediction", "stashing"]
    every: Annotated[int, whole(1, 65_536)] = 1
    error_feedback: Annotated[float, number(at_least=0, at_most=1)] = 0.0

    @property
    def most_in_flight(self) -> int | None:
        """Micro-batches of a stage; None: any number."""
        return self.every + 1 if self.rule == "2bw" else None

    def versions(self, own_copies: bool) -> WeightVersions:
        """What the built-in worker holds for it, whose weights and moments are fp32.

        With `own_copies` every micro-batch in flight keeps the bf16 copies that it was computed with: it cannot share
        them, as weights change meanwhile.
        """
        remembered_bytes = 4.0 if self.error_feedback else 0.0
        held_bytes = {
            "paci": 12.0,  # weights and both moments, to go back to
            "2bw": 4.0 + remembered_bytes,  # the older weights
            "prediction": 4.0,
            "stashing": 0.0,
        }[self.rule]
        in_flight_bytes = (4.0 if self.rule == "stashing" else 0.0) + (2.0 if own_copies else 0.0)
        return WeightVersions(held_bytes, in_flight_bytes, self.most_in_flight)


class RunSection(Section):
    """What is executed: the built-in worker, or a command (in an image, where one is named)."""

    builtin: Literal["gpt"] | None = None
    corpus: FilePath | None = None
    optimizer: Literal["adamw", "muon"] | None = None
    rate_schedule: RateScheduleSection | None = None
    clip_norm: Annotated[float, number(above=0, at_most=1e9)] | None = None
    updates: UpdatesSection | None = None
    ready_first: Flag | None = None
    learning_rate: Annotated[float, number(above=0, at_most=1)] | None = None
    seed: Annotated[int, whole(0, 1_000_000)] | None = None
    image: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}$")] | None = None
    command: Annotated[list[Argument], Field(min_length=1, max_length=256)] | None = None
    env: Annotated[dict[Variable, Argument], Field(max_length=128)] | None = None
    secrets: Annotated[dict[Variable, Reference], Field(max_length=64)] | None = None


class ProfileSection(Section):
    """Measured figures in the place of the formulas; meaning as in `scheduler.job.MeasuredProfile`."""

    forward_s: Annotated[
        dict[GpuName, Annotated[float, number(above=0, at_most=1e6)]], Field(min_length=1, max_length=64)
    ]
    backward_s: Annotated[
        dict[GpuName, Annotated[float, number(above=0, at_most=1e6)]], Field(min_length=1, max_length=64)
    ]
    activation_bytes: PositiveBytes
    stage_memory_bytes: PositiveBytes
    inflight_bytes: Bytes

    def measured(self) -> MeasuredProfile:
        """The figures as the planner takes them."""
        return MeasuredProfile(
            forward_s=dict(self.forward_s),
            backward_s=dict(self.backward_s),
            activation_bytes=self.activation_bytes,
            stage_memory_bytes=self.stage_memory_bytes,
            inflight_bytes=self.inflight_bytes,
        )


def plain(value: float) -> float | int:
    """A whole float as an int, so that a completed job reads as it was written."""
    return int(value) if math.isfinite(value) and value == int(value) else value
