"""What of a job decides how long its iteration takes, and how its layers are split."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.errors import InvalidValueError
from scheduler.job import (
    WEIGHTS_ALONE,
    JobSpec,
    MeasuredProfile,
    ModelShape,
    Recompute,
    Schedule,
    WeightVersions,
)
from scheduler.pipeline.plan.ir import LowRank


@dataclass(frozen=True, slots=True)
class MeasuredFigures:
    """A MeasuredProfile that can be a key: the same figures, ordered."""

    forward_s: tuple[tuple[str, float], ...]
    backward_s: tuple[tuple[str, float], ...]
    activation_bytes: float
    stage_memory_bytes: float
    inflight_bytes: float

    @classmethod
    def of(cls, profile: MeasuredProfile) -> MeasuredFigures:
        return cls(
            tuple(sorted(profile.forward_s.items())),
            tuple(sorted(profile.backward_s.items())),
            profile.activation_bytes,
            profile.stage_memory_bytes,
            profile.inflight_bytes,
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """All of a job that decides how long its iteration takes, and nothing else: the key of every cache."""

    model: ModelShape
    micro_batch: int
    micro_batches: int
    bytes_per_element: int
    schedule: Schedule
    recompute: Recompute
    tensor: int
    data: float
    measured: MeasuredFigures | None
    splits_backward: bool = False
    codec: LowRank | None = None
    versions: WeightVersions = WEIGHTS_ALONE
    update_every: int | None = None
    builtin_layers: bool = False
    ready_first: bool = False

    @property
    def keeps_full(self) -> bool:
        """Whether iterations run one into the other: weights change within them, and nothing else between them.

        GPipe ends one before the next begins, whatever its updates: it would have every micro-batch wait for those
        before it.
        """
        return self.update_every is not None and self.codec is None and self.schedule is not Schedule.GPIPE

    @property
    def updates(self) -> int:
        """Of each stage in an iteration."""
        return 1 if self.update_every is None else self.micro_batches // self.update_every

    @classmethod
    def of(cls, spec: JobSpec) -> Workload:
        """The workload of a job. Jobs that differ in steps, name or owner alone have the same one."""
        training, parallelism = spec.training, spec.parallelism
        return cls(
            spec.model,
            training.micro_batch,
            training.micro_batches,
            training.bytes_per_element,
            training.schedule,
            training.recompute,
            parallelism.tensor,
            parallelism.data,
            None if spec.profile is None else MeasuredFigures.of(spec.profile),
            training.splits_backward and training.schedule in (Schedule.AUTO, Schedule.GENERATED),
            parallelism.codec,
            training.versions,
            training.update_every,
            training.builtin_layers,
            training.ready_first,
        )


def split_layers(model: ModelShape, stages: int) -> tuple[int, ...]:
    """Whole layers of each stage: ⌊L/K⌋, and one more for the last L mod K stages.

    The larger stages stand last because 1F1B keeps fewer micro-batches in flight there. As the head is there too,
    the slowest stage always has ⌈L/K⌉ layers: the pace changes only where ⌈L/K⌉ does.
    Raises InvalidValueError for less than one layer a stage.
    """
    if not 1 <= stages <= model.layers:
        raise InvalidValueError("stages", stages, f"1 … layers = {model.layers}")
    least, larger = divmod(model.layers, stages)
    return (least,) * (stages - larger) + (least + 1,) * larger


def layers_before(model: ModelShape, stages: int, stage: int) -> int:
    """Layers of the first so many of that many stages: the sum of `split_layers` up to there."""
    least, larger = divmod(model.layers, stages)
    return least * stage + max(0, stage - (stages - larger))
