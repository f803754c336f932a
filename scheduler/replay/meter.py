"""Bills a generation of a job: energy, electricity, egress and rent, by the formulas of `scheduler.cost`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from scheduler.cluster import Cluster, LinkKey, Ownership
from scheduler.cost import (
    egress_bytes_per_iteration,
    egress_usd,
    electricity_usd,
    energy_kwh,
    facility_kw,
    rent_usd,
    segment_powers_w,
)
from scheduler.datasets import Bringing
from scheduler.job import JobSpec
from scheduler.placement import Placement, Transfer
from scheduler.price import PriceSeries
from scheduler.profile import boundary_bytes
from scheduler.replay.errors import PricesEndError
from scheduler.replay.records import AllocationRow, LinkRow, LinkUse
from scheduler.replay.truth import Pace
from scheduler.spec.scenario import Scenario
from scheduler.units import format_time


@dataclass(frozen=True, slots=True)
class Arrival:
    """A transfer of state as granted: after a while it travels for `travel_s`, until `at_s`.

    Its bandwidth is held from the start of the generation until then.
    """

    transfer: Transfer
    at_s: float
    travel_s: float


@dataclass(frozen=True, slots=True)
class Generation:
    """A run of a job on one placement, from its start to its end, in seconds from the start of the scenario.

    It restarted for `restart_s`, then did `steps`, and `steps_lost` that a fault undid, and in the last `stop_s` wrote
    its state. `arrivals` are what brought its state when it began.
    """

    spec: JobSpec
    number: int
    placement: Placement
    pace: Pace
    steps: int
    start_s: float
    restart_s: float
    stop_s: float
    end_s: float
    steps_lost: int = 0
    arrivals: tuple[Arrival, ...] = ()
    brings: tuple[Bringing, ...] = ()
    """Data sets that are brought to where it begins."""

    @property
    def steps_done(self) -> int:
        """Whole steps, those that were lost later included."""
        return self.steps + self.steps_lost

    @property
    def training_share(self) -> float:
        """The part of the time in which it did whole steps."""
        duration_s = self.end_s - self.start_s
        return min(1.0, self.steps_done * self.pace.iteration_s / duration_s) if duration_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Bill:
    """What a generation came to."""

    energy_kwh: float
    electricity_usd: float
    egress_usd: float
    rent_usd: float
    paid_usd: float
    """By whoever runs it: egress, rent where pools are rented, electricity where they are owned."""
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
        links = (*self._cuts(run), *self._transfers(run), *self._data(run))
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
            for segment in run.placement.segments
        ]
        egress = math.fsum(egress_usd(row.bytes, row.usd_per_gb) for row in links)
        owned = [
            usd
            for row, usd in zip(allocations, electricity, strict=True)
            if not self._is_rented(run, row.region)
        ]
        return Bill(
            energy_kwh=math.fsum(energy),
            electricity_usd=math.fsum(electricity),
            egress_usd=egress,
            rent_usd=math.fsum(rent),
            paid_usd=math.fsum((egress, *rent, *owned)),
            allocations=allocations,
            links=links,
        )

    def _is_rented(self, run: Generation, region: str) -> bool:
        """All pools of a region are, or none: a scenario has one rent for a region."""
        return any(
            self._cluster.pools[segment.region, segment.gpu_type].ownership is Ownership.RENTED
            for segment in run.placement.segments
            if segment.region == region
        )

    def _allocations(self, run: Generation) -> tuple[AllocationRow, ...]:
        """A row for each region; where a chain uses two pools of one region, the mean draw over their GPUs."""
        placement = run.placement
        powers = self._segment_powers_w(run)
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
                    iteration_s=run.pace.iteration_s,
                    steps=run.steps,
                    start_s=run.start_s,
                    end_s=run.end_s,
                    restart_s=run.restart_s,
                    stop_s=run.stop_s,
                    steps_lost=run.steps_lost,
                )
            )
        return tuple(rows)

    def _segment_powers_w(self, run: Generation) -> list[float]:
        """Mean draw of one GPU of each segment over the whole generation: idle wherever it does not train."""
        placement, types, share = run.placement, self._cluster.gpu_types, run.training_share
        training = segment_powers_w(placement, run.pace.busy_fraction, types)
        return [
            power * share + types[segment.gpu_type].idle_w * (1 - share)
            for segment, power in zip(placement.segments, training, strict=True)
        ]

    def _cuts(self, run: Generation) -> Iterator[LinkRow]:
        each = egress_bytes_per_iteration(boundary_bytes(run.spec), run.spec.training.micro_batches)
        sent = each * run.steps_done
        for cut in run.placement.cuts:
            for src, dst in ((cut.src, cut.dst), (cut.dst, cut.src)):
                yield self._link(run, (src, dst), cut.bandwidth_bps, sent, run.end_s, LinkUse.CUT)

    def _transfers(self, run: Generation) -> Iterator[LinkRow]:
        """What had not arrived when the job was stopped has been sent in part, and that part is paid."""
        for each in run.arrivals:
            transfer, sent, until_s = each.transfer, each.transfer.sent_bytes, each.at_s
            if run.end_s < until_s:
                travelled_s = max(0.0, run.end_s - (each.at_s - each.travel_s))
                sent, until_s = sent * min(1.0, travelled_s / each.travel_s), run.end_s
            yield self._link(
                run, (transfer.src, transfer.dst), transfer.bandwidth_bps, sent, until_s, LinkUse.STATE
            )

    def _data(self, run: Generation) -> Iterator[LinkRow]:
        """A set is paid whole, however soon the job is stopped: it goes on arriving."""
        for each in run.brings:
            yield self._link(run, (each.src, each.dst), 0.0, each.sent_bytes, run.end_s, LinkUse.DATA)

    def _link(
        self, run: Generation, link: LinkKey, reserved_bps: float, sent: float, end_s: float, use: LinkUse
    ) -> LinkRow:
        return LinkRow(
            job_id=run.spec.job_id,
            generation=run.number,
            src=link[0],
            dst=link[1],
            reserved_bps=reserved_bps,
            bytes=sent,
            usd_per_gb=self._cluster.links[link].egress_usd_per_gb,
            start_s=run.start_s,
            end_s=end_s,
            use=use,
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
