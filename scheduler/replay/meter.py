"""Bills a generation of a job: energy, electricity, egress and rent, by the formulas of `scheduler.cost`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from scheduler.cluster import Cluster
from scheduler.cost import (
    egress_bytes_per_iteration,
    egress_usd,
    electricity_usd,
    energy_kwh,
    facility_kw,
    rent_usd,
    segment_powers_w,
)
from scheduler.evaluate import Evaluation
from scheduler.job import JobSpec
from scheduler.price import PriceSeries
from scheduler.profile import boundary_bytes
from scheduler.replay.errors import PricesEndError
from scheduler.replay.records import AllocationRow, LinkRow
from scheduler.spec.scenario import Scenario
from scheduler.units import format_time


@dataclass(frozen=True, slots=True)
class Generation:
    """A run of a job on one placement, from its start to its end, in seconds from the start of the scenario."""

    spec: JobSpec
    number: int
    evaluation: Evaluation
    steps: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Bill:
    """What a generation came to."""

    energy_kwh: float
    electricity_usd: float
    egress_usd: float
    rent_usd: float
    allocations: tuple[AllocationRow, ...]
    links: tuple[LinkRow, ...]


class Meter:
    """Bills by the scenario's prices. Its clock counts from the start of the scenario: epoch seconds would lose the
    digits that a short job's cost needs."""

    def __init__(self, scenario: Scenario) -> None:
        self._cluster: Cluster = scenario.cluster
        self._scenario = scenario
        self._prices: Mapping[str, PriceSeries] = {
            region: _from_start(series, scenario.start_s) for region, series in scenario.electricity.items()
        }

    def bill(self, run: Generation) -> Bill:
        """Raises PricesEndError where the run goes beyond the end of a region's prices."""
        allocations = self._allocations(run)
        links = self._links(run)
        duration_s = run.end_s - run.start_s
        energy, electricity = [], []
        for row in allocations:
            kilowatts = facility_kw(row.gpus, row.power_w, self._cluster.regions[row.region].pue)
            energy.append(energy_kwh(kilowatts, duration_s))
            electricity.append(self._electricity(run, row.region, kilowatts))
        rent = [
            rent_usd(
                segment.gpus,
                duration_s,
                self._cluster.pools[segment.region, segment.gpu_type].rent_usd_per_gpu_hour,
            )
            for segment in run.evaluation.placement.segments
        ]
        return Bill(
            energy_kwh=math.fsum(energy),
            electricity_usd=math.fsum(electricity),
            egress_usd=math.fsum(egress_usd(row.bytes, row.usd_per_gb) for row in links),
            rent_usd=math.fsum(rent),
            allocations=allocations,
            links=links,
        )

    def _allocations(self, run: Generation) -> tuple[AllocationRow, ...]:
        """A row for each region; where a chain uses two pools of one region, the mean draw over their GPUs."""
        placement = run.evaluation.placement
        powers = segment_powers_w(placement, run.evaluation.busy_fraction, self._cluster.gpu_types)
        rows = []
        for region in placement.regions:
            held = [
                (segment, power)
                for segment, power in zip(placement.segments, powers, strict=True)
                if segment.region == region
            ]
            gpus = sum(segment.gpus for segment, _ in held)
            rows.append(
                AllocationRow(
                    job_id=run.spec.job_id,
                    generation=run.number,
                    region=region,
                    stages=sum(segment.stages for segment, _ in held),
                    gpus=gpus,
                    power_w=math.fsum(segment.gpus * power for segment, power in held) / gpus,
                    iteration_s=run.evaluation.iteration_s,
                    steps=run.steps,
                    start_s=run.start_s,
                    end_s=run.end_s,
                )
            )
        return tuple(rows)

    def _links(self, run: Generation) -> tuple[LinkRow, ...]:
        sent = (
            egress_bytes_per_iteration(boundary_bytes(run.spec), run.spec.training.micro_batches) * run.steps
        )
        return tuple(
            LinkRow(
                job_id=run.spec.job_id,
                generation=run.number,
                src=src,
                dst=dst,
                reserved_bps=cut.bandwidth_bps,
                bytes=sent,
                usd_per_gb=self._cluster.links[src, dst].egress_usd_per_gb,
                start_s=run.start_s,
                end_s=run.end_s,
            )
            for cut in run.evaluation.placement.cuts
            for src, dst in ((cut.src, cut.dst), (cut.dst, cut.src))
        )

    def _electricity(self, run: Generation, region: str, kilowatts: float) -> float:
        series = self._prices[region]
        if run.end_s > series.end_s:
            end = format_time(self._scenario.start_s + series.end_s)
            until = format_time(self._scenario.start_s + run.end_s)
            raise PricesEndError(
                f"{self._scenario.path}: the price of region {region} ({self._scenario.price_sources[region]}) ends at "
                f"{end}, but job {run.spec.job_id} runs there until {until}: give prices for that long, or fewer jobs"
            )
        return electricity_usd(series, run.start_s, run.end_s, kilowatts)


def _from_start(series: PriceSeries, start_s: float) -> PriceSeries:
    return replace(
        series,
        valid_from_s=tuple(time_s - start_s for time_s in series.valid_from_s),
        known_at_s=tuple(time_s - start_s for time_s in series.known_at_s),
        end_s=series.end_s - start_s,
    )
