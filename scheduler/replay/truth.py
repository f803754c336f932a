"""How a job really runs: what policies believe, unless the scenario says where the world differs from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scheduler.cluster import Cluster
from scheduler.evaluate import as_planned, evaluate
from scheduler.job import JobSpec
from scheduler.placement import Placement, Transfer
from scheduler.replay.draws import uniform
from scheduler.spec.scenario_document import AS_TOLD, TruthSection


@dataclass(frozen=True, slots=True)
class Pace:
    """How long an iteration takes, and the part of it that each stage computes."""

    iteration_s: float
    busy_fraction: tuple[float, ...]


class Truth:
    """The world behind a cluster as policies see it."""

    def __init__(self, cluster: Cluster, section: TruthSection) -> None:
        self._section = section
        self._cluster = cluster
        self._as_told = section == AS_TOLD
        if section.mfu != 1:
            types = {
                name: replace(gpu, sustained_flops=gpu.sustained_flops * section.mfu)
                for name, gpu in cluster.gpu_types.items()
            }
            self._cluster = replace(cluster, gpu_types=types)

    @property
    def cluster(self) -> Cluster:
        """The cluster as it is."""
        return self._cluster

    def pace(self, spec: JobSpec, generation: int, placement: Placement) -> Pace:
        """Of a generation of a job, in the window that it was given.

        A straggler takes `slowdown` times as long; what the other GPUs compute is the same, so they idle more.
        """
        if self._as_told:
            made = evaluate(spec, self._cluster, placement.segments, placement.cuts)
            if made.placement != placement:
                made = as_planned(spec, self._cluster, placement)
            return Pace(made.iteration_s, made.busy_fraction)
        carried = tuple(
            replace(cut, bandwidth_bps=self.carried_bps(cut.bandwidth_bps)) for cut in placement.cuts
        )
        made = as_planned(spec, self._cluster, replace(placement, cuts=carried))
        slowdown = self._slowdown(spec.job_id, generation)
        return Pace(made.iteration_s * slowdown, tuple(busy / slowdown for busy in made.busy_fraction))

    def carried_bps(self, granted_bps: float) -> float:
        """What comes through of a grant of bandwidth."""
        return granted_bps * self._section.bandwidth

    def carried(self, transfer: Transfer) -> Transfer:
        """A transfer at the bandwidth that comes through."""
        return replace(transfer, bandwidth_bps=self.carried_bps(transfer.bandwidth_bps))

    def _slowdown(self, job_id: str, generation: int) -> float:
        stragglers = self._section.stragglers
        if stragglers is None or uniform(f"{stragglers.seed}/{job_id}/{generation}") >= stragglers.share:
            return 1.0
        return stragglers.slowdown
