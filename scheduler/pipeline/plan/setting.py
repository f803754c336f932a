"""A job on a chain of regions, as the ranks, costs and links that any layout of its model needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from scheduler.cluster import Cluster, GpuType
from scheduler.errors import InvalidValueError
from scheduler.evaluate import Evaluation, evaluate, split_chain_of
from scheduler.job import JobSpec, Recompute, Schedule
from scheduler.network import Residual
from scheduler.pipeline.plan.auto import SplitChain
from scheduler.pipeline.plan.ir import Link, Pipeline
from scheduler.pipeline.plan.layouts import Layout
from scheduler.pipeline.plan.placed import links_of, placed
from scheduler.placement import Placement
from scheduler.profile import USABLE_MEMORY, Workload, profiles_of


@dataclass(frozen=True, slots=True)
class Setting:
    """One GPU group a rank, in pipeline order. `evaluation` is that of the job's own schedule, or of strict 1F1B where
    that has two stages a rank."""

    spec: JobSpec
    cluster: Cluster
    residual: Residual
    evaluation: Evaluation
    split: SplitChain

    @classmethod
    def of(cls, spec: JobSpec, residual: Residual, placement: Placement) -> Setting:
        """Raises InvalidValueError as `evaluate` does."""
        cluster, where = residual.topology.cluster, (placement.segments, placement.cuts)
        evaluation = evaluate(in_line(spec), cluster, *where)
        return cls(spec, cluster, residual, evaluation, split_chain_of(spec, cluster, *where))

    @property
    def placement(self) -> Placement:
        """Where the ranks stand."""
        return self.evaluation.placement

    @property
    def ranks(self) -> int:
        """K."""
        return self.placement.stages

    @property
    def micro_batches(self) -> int:
        """M."""
        return self.spec.training.micro_batches

    @property
    def regions(self) -> tuple[str, ...]:
        """The region of each rank."""
        return tuple(each.region for each in self.placement.segments for _ in range(each.stages))

    @property
    def gpus(self) -> tuple[GpuType, ...]:
        """The type of GPU of each rank."""
        types = self.cluster.gpu_types
        return tuple(types[each.gpu_type] for each in self.placement.segments for _ in range(each.stages))

    @property
    def memory_bytes(self) -> tuple[float, ...]:
        """What each rank may fill of one of its GPUs."""
        return tuple(USABLE_MEMORY * gpu.memory_bytes for gpu in self.gpus)

    @property
    def splits_backward(self) -> bool:
        """Whether a backward of this job can be cut in two."""
        return self.spec.training.recompute is not Recompute.FULL

    def pipeline(self, layout: Layout, *, split: bool = False) -> Pipeline:
        """The model cut into the stages of a layout; with `split` for orders that split backwards.

        Raises InvalidValueError where its layers do not divide into them, or a link is missing between regions.
        """
        for chain in layout.chains:
            self._require_equal_stages(len(chain))
        links = [*links_of(self.placement.cuts), *(self._closing_links() if self._returns(layout) else ())]
        return placed(Workload.of(self.spec), layout, self.gpus, self.regions, links, split=split)

    def end_s(self, layout: Layout) -> float:
        """What ends an iteration after the last backward: the longest of a rank, over all its stages; and what all
        layouts have alike, as the evaluation has it."""
        gpus, spent_s = self.gpus, [0.0] * self.ranks
        for chain in layout.chains:
            profiles = profiles_of(Workload.of(self.spec), tuple(gpus[rank] for rank in chain))
            for rank, profile in zip(chain, profiles, strict=True):
                spent_s[rank] += profile.sync_s
        made = self.evaluation
        alike_s = made.iteration_s - made.timeline_s - max(each.sync_s for each in made.stage_profiles)
        return max(spent_s) + max(0.0, alike_s)

    def _require_equal_stages(self, stages: int) -> None:
        layers = self.spec.model.layers
        if stages != self.ranks and layers % stages:
            raise InvalidValueError(
                "model.layers", layers, f"a multiple of {stages}: {stages // self.ranks} equal stages a rank"
            )

    def _returns(self, layout: Layout) -> bool:
        """Whether a message goes from the last region straight to the first, over a link that no cut has."""
        first, last = self.regions[0], self.regions[-1]
        cuts = {frozenset((cut.src, cut.dst)) for cut in self.placement.cuts}
        crossed = {
            frozenset((self.regions[a], self.regions[b]))
            for chain in layout.chains
            for a, b in pairwise(chain)
        }
        return frozenset((first, last)) in crossed - cuts and first != last

    def _closing_links(self) -> Iterator[Link]:
        """What is free between the last region and the first."""
        first, last = self.regions[0], self.regions[-1]
        free_bps = self.residual.pair_bps(last, first)
        if not free_bps:
            raise InvalidValueError(
                "links", f"{last} and {first}", "a free link between the last region and the first, both ways"
            )
        latency_s = self.residual.topology.pair_latency_s[last, first]
        for src, dst in ((last, first), (first, last)):
            yield Link(src, dst, latency_s, free_bps)


def in_line(spec: JobSpec) -> JobSpec:
    """The job with one stage a rank: as it is, or with strict 1F1B."""
    if spec.training.schedule.parts == 1:
        return spec
    return replace(spec, training=replace(spec.training, schedule=Schedule.ONE_F_ONE_B))
