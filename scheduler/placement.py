"""Where a job's stages stand: segments in regions, joined by cuts with granted bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from scheduler.errors import InvalidValueError
from scheduler.job import Schedule


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive stages in one pool: `stages` of them, `gpus_per_stage` GPUs each."""

    region: str
    gpu_type: str
    stages: int
    gpus_per_stage: int

    def __post_init__(self) -> None:
        for name in ("stages", "gpus_per_stage"):
            if getattr(self, name) < 1:
                raise InvalidValueError(f"segment {self.region}: {name}", getattr(self, name), "at least 1")

    @property
    def gpus(self) -> int:
        """GPUs that the segment holds."""
        return self.stages * self.gpus_per_stage


@dataclass(frozen=True, slots=True)
class Cut:
    """A stage boundary that crosses regions. `bandwidth_bps` is granted in each of the two directions."""

    src: str
    dst: str
    bandwidth_bps: float
    latency_s: float

    def __post_init__(self) -> None:
        if not self.bandwidth_bps > 0:
            raise InvalidValueError(
                f"cut {self.src}->{self.dst}: bandwidth_bps", self.bandwidth_bps, "above 0"
            )


@dataclass(frozen=True, slots=True)
class Transfer:
    """State of a job that travels to where its stages restart. `bandwidth_bps` is granted in this one direction, until
    everything has arrived."""

    src: str
    dst: str
    sent_bytes: float
    bandwidth_bps: float

    def __post_init__(self) -> None:
        for name in ("sent_bytes", "bandwidth_bps"):
            if not getattr(self, name) > 0:
                raise InvalidValueError(
                    f"transfer {self.src}->{self.dst}: {name}", getattr(self, name), "above 0"
                )

    @property
    def duration_s(self) -> float:
        """How long it takes on what it is granted."""
        return self.sent_bytes * 8 / self.bandwidth_bps


@dataclass(frozen=True, slots=True)
class Placement:
    """A proposal: the chain in pipeline order. `cuts[i]` is the crossing after the i-th region of the chain.

    Neighbouring segments of one region (in pools of different types) have no cut between them. `window` is
    the in-flight cap of each stage (`schedule`'s, chosen by what fits in memory); where the schedule has two parts of
    the model on each, of each part, in their order. Where backwards are split `lag` has for each stage how many
    micro-batches the gradient of its weights runs behind that of its input. What no window and lag tell has an `order`
    of each stage (`pipeline/plan/order_text.py`).
    """

    segments: tuple[Segment, ...]
    cuts: tuple[Cut, ...]
    schedule: Schedule
    window: tuple[int, ...]
    lag: tuple[int, ...] = ()
    order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        crossings = [(a.region, b.region) for a, b in pairwise(self.segments) if a.region != b.region]
        if not self.segments:
            raise InvalidValueError("placement.segments", (), "at least one segment")
        if crossings != [(cut.src, cut.dst) for cut in self.cuts]:
            raise InvalidValueError("placement.cuts", self.cuts, f"one cut for each crossing of {crossings}")
        if len(self.window) != self.stages * self.schedule.parts:
            raise InvalidValueError(
                "placement.window",
                self.window,
                f"one cap for each of {self.stages * self.schedule.parts} stages",
            )
        if self.lag and (len(self.lag) != self.stages or min(self.lag) < 0):
            raise InvalidValueError(
                "placement.lag",
                self.lag,
                f"nothing, or a number of 0 or more for each of {self.stages} stages",
            )
        if (self.order or self.schedule.parts > 1) and (len(self.order) != self.stages or self.lag):
            raise InvalidValueError(
                "placement.order", len(self.order), f"what each of {self.stages} stages does, and no lag"
            )

    @property
    def stages(self) -> int:
        """K, the number of stages."""
        return sum(segment.stages for segment in self.segments)

    @property
    def gpus(self) -> int:
        """GPUs that the placement holds."""
        return sum(segment.gpus for segment in self.segments)

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions of the chain, in pipeline order, each once."""
        return tuple(dict.fromkeys(segment.region for segment in self.segments))

    def describe(self) -> str:
        """The chain as files and tables print it: `r1:4>r2:8`, stages a region."""
        stages: dict[str, int] = {}
        for segment in self.segments:
            stages[segment.region] = stages.get(segment.region, 0) + segment.stages
        return ">".join(f"{region}:{count}" for region, count in stages.items())


@dataclass(frozen=True, slots=True)
class Allocation:
    """A committed placement of one generation of a job."""

    allocation_id: str
    job_id: str
    generation: int
    placement: Placement
    start_s: float


class AllocationState(StrEnum):
    """Life of an allocation. Held (GPUs, bandwidth) in every state but `ended`."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


ALLOCATION_TRANSITIONS: dict[AllocationState, frozenset[AllocationState]] = {
    AllocationState.STARTING: frozenset(
        {AllocationState.RUNNING, AllocationState.STOPPING, AllocationState.ENDED}
    ),
    AllocationState.RUNNING: frozenset({AllocationState.STOPPING, AllocationState.ENDED}),
    AllocationState.STOPPING: frozenset({AllocationState.ENDED}),
    AllocationState.ENDED: frozenset(),
}
