"""The sections of a scenario file as they stand in it; `scheduler.spec.scenario` makes a Scenario of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from scheduler.cluster import RestartCosts
from scheduler.job import Elasticity, Recompute, Schedule
from scheduler.objective import Objective
from scheduler.spec.fields import (
    Duration,
    GpuName,
    PositiveBytes,
    RegionName,
    Section,
    Time,
    number,
    refuse,
    whole,
)
from scheduler.spec.links import BPS_PER_GBPS, FIELDS
from scheduler.spec.model import ModelSection
from scheduler.spec.prices import Known, PriceUnit
from scheduler.spec.sections import AskedSchedule

MAX_JOBS = 200_000
_RESTART = RestartCosts()
_OBJECTIVE = Objective()

Price = Annotated[float, Field(strict=True, ge=-1000, le=1000, allow_inf_nan=False)]
"""USD per kWh; may be negative."""


Tenant = Annotated[str, Field(min_length=1, max_length=256)]


def _readable_path(text: str) -> str:
    if "\x00" in text:
        raise refuse("a path without NUL")
    return text


def _link_field(name: str) -> str:
    if name not in FIELDS:
        raise refuse(f"one of the fields {', '.join(FIELDS)}")
    return name


ScenarioPath = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_readable_path)]
"""Relative to the scenario file; may go up."""


class GpuSection(Section):
    """A GPU type. Without idle_w the draw is constant. What is left out of the last two comes from the preset of
    that name, where there is one."""

    tflops: Annotated[float, number(above=0, at_most=1e6)]
    mfu: Annotated[float, number(above=0, at_most=1)]
    memory: PositiveBytes
    power_w: Annotated[float, number(at_least=0, at_most=1e5)]
    idle_w: Annotated[float, number(at_least=0, at_most=1e5)] | None = None
    intra_region_gbps: Annotated[float, number(above=0, at_most=1e6)] | None = None
    memory_gbps: Annotated[float, number(above=0, at_most=1e7)] | None = None


class PriceSection(Section):
    """Exactly one of usd_per_kwh (flat), hourly_usd_per_kwh (24 UTC hours, repeated daily) and csv."""

    usd_per_kwh: Price | None = None
    hourly_usd_per_kwh: Annotated[list[Price], Field(min_length=24, max_length=24)] | None = None
    csv: ScenarioPath | None = None
    column: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    unit: PriceUnit | None = None
    known: Known | None = None


class RegionSection(Section):
    """A region, its pools by GPU type, and what bounds and prices it."""

    name: RegionName
    gpus: Annotated[dict[GpuName, Annotated[int, whole(0, 10_000_000)]], Field(min_length=1, max_length=64)]
    pue: Annotated[float, number(at_least=1, at_most=10)] = 1.0
    price: PriceSection
    uplink_gbps: Annotated[float, number(above=0, at_most=1e8)] | None = None
    downlink_gbps: Annotated[float, number(above=0, at_most=1e8)] | None = None
    rent_usd_per_gpu_hour: Annotated[float, number(at_least=0, at_most=1e5)] = 0.0


class LinkSection(Section):
    """One direction of a link."""

    src: RegionName
    dst: RegionName
    gbps: Annotated[float, number(at_least=0, at_most=1e8)]
    rtt_ms: Annotated[float, number(at_least=0, at_most=1e6)]
    egress_usd_per_gb: Annotated[float, number(at_least=0, at_most=1e5)] = 0.0


class LinksFileSection(Section):
    """A CSV of links; `columns` maps fields to the columns that hold them."""

    csv: ScenarioPath
    columns: dict[Annotated[str, AfterValidator(_link_field)], str] = Field(default_factory=dict)


class EstimateSection(Section):
    """Declared steps = actual × bias × log-normal(0, sigma), at least 1; drawn for each job from the seed and its
    id."""

    bias: Annotated[float, number(above=0, at_most=1000)] = 1.0
    sigma: Annotated[float, number(at_least=0, at_most=10)] = 0.0
    seed: Annotated[int, whole(0, 2**31 - 1)] = 0


class TraceJobsSection(Section):
    """Jobs of a trace file."""

    trace: ScenarioPath
    elasticity: Elasticity = Elasticity.RESIZE
    estimate: EstimateSection = EstimateSection()


class WeightedModelSection(ModelSection):
    """A model that the generator draws, `weight` times as often as one of weight 1."""

    weight: Annotated[float, number(above=0, at_most=1e6)] = 1.0


class SizeSection(Section):
    """A size that the generator draws: the stages that the job names, and the GPUs of each."""

    stages: Annotated[int, whole(1, 1024)]
    tensor: Annotated[int, whole(1, 1024)] = 1
    data: Annotated[int, whole(1, 65_536)] = 1
    weight: Annotated[float, number(above=0, at_most=1e6)] = 1.0


class DurationSection(Section):
    """Solo run times: log-normal with this median; sigma is that of the logarithm."""

    median: Duration
    sigma: Annotated[float, number(at_least=0, at_most=5)] = 0.0


class GeneratorSection(Section):
    """`count` jobs drawn from a seed. Arrivals: all at the start, or a Poisson process with this mean gap."""

    seed: Annotated[int, whole(0, 2**31 - 1)] = 0
    count: Annotated[int, whole(1, MAX_JOBS)]
    arrivals: Literal["all", "poisson"] = "poisson"
    mean_gap: Duration | None = None
    models: Annotated[list[WeightedModelSection], Field(min_length=1, max_length=256)]
    sizes: Annotated[list[SizeSection], Field(min_length=1, max_length=256)]
    duration: DurationSection
    micro_batch: Annotated[int, whole(1, 65_536)] = 1
    micro_batches_per_stage: Annotated[int, whole(1, 65_536)] = 8


class GeneratedJobsSection(Section):
    """Jobs of a generator."""

    generator: GeneratorSection
    elasticity: Elasticity = Elasticity.RESIZE
    estimate: EstimateSection = EstimateSection()


class TrainingDefaultsSection(Section):
    """How the jobs train where they do not say so themselves."""

    schedule: AskedSchedule = Schedule.ONE_F_ONE_B
    recompute: Recompute = Recompute.SELECTIVE


class ScaleSection(Section):
    """`bandwidth` multiplies the links (not the up- and downlinks), `gpus` the pools (rounded down), `arrivals` how
    dense the jobs come."""

    bandwidth: Annotated[float, number(above=0, at_most=1e6)] = 1.0
    gpus: Annotated[float, number(above=0, at_most=1e6)] = 1.0
    arrivals: Annotated[float, number(above=0, at_most=1e6)] = 1.0


class RestartSection(Section):
    """What stopping and restarting takes, whatever the job: see `scheduler.cluster.RestartCosts`, also for what is
    left out."""

    fixed: Duration = _RESTART.fixed_s
    storage_gbps_per_gpu: Annotated[float, number(above=0, at_most=1e6)] = (
        _RESTART.storage_bps_per_gpu / BPS_PER_GBPS
    )
    checkpoint_every: Duration = _RESTART.checkpoint_every_s

    def costs(self) -> RestartCosts:
        """In base units. Raises InvalidValueError for a checkpoint interval of 0."""
        return RestartCosts(self.fixed, self.storage_gbps_per_gpu * BPS_PER_GBPS, self.checkpoint_every)


class StragglersSection(Section):
    """So large a share of all generations is slower by a factor, drawn for each from the seed."""

    share: Annotated[float, number(at_least=0, at_most=1)]
    slowdown: Annotated[float, number(at_least=1, at_most=100)]
    seed: Annotated[int, whole(0, 2**31 - 1)] = 0


class TruthSection(Section):
    """Where the world differs from what policies believe: GPUs keep up `mfu` times as many FLOP/s as told, links
    carry `bandwidth` times what was granted, and some jobs straggle."""

    mfu: Annotated[float, number(above=0, at_most=100)] = 1.0
    bandwidth: Annotated[float, number(above=0, at_most=100)] = 1.0
    stragglers: StragglersSection | None = None


AS_TOLD = TruthSection()
"""The world is what policies believe."""


class FaultGeneratorSection(Section):
    """Faults of every node, drawn: exponential times between them and until it is repaired, for `span` in all."""

    mean_between: Duration
    mean_repair: Duration
    span: Duration = 365 * 86_400.0


class FaultsSection(Section):
    """Node faults: exactly one of trace and generator. `nodes` is how many the traced cluster had, `skip` leaves out
    the first part of the trace. A job that was hit does not go back to that region for `cool_down`."""

    trace: ScenarioPath | None = None
    generator: FaultGeneratorSection | None = None
    seed: Annotated[int, whole(0, 2**31 - 1)] = 0
    nodes: Annotated[int, whole(1, 1_000_000)] = 400
    skip: Duration = 0.0
    cool_down: Duration = 3600.0


class ObjectiveSection(Section):
    """What the cluster is to be good at: see `scheduler.objective.Objective`, also for what is left out."""

    weight_jct: Annotated[float, number(at_least=0, at_most=1)] = _OBJECTIVE.weight_jct
    cheapest_within: Annotated[float, number(at_least=0, at_most=10)] | None = _OBJECTIVE.cheapest_within


class ScenarioDocument(Section):
    """A scenario file. `links` and `jobs` are a list or a mapping and are read by their own sections."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,126}$")] | None = None
    description: Annotated[str, Field(max_length=4096)] | None = None
    start: Time
    gpus: Annotated[dict[GpuName, GpuSection], Field(max_length=256)] = Field(default_factory=dict)
    regions: Annotated[list[RegionSection], Field(min_length=1, max_length=1000)]
    links: Any = Field(default_factory=list)
    jobs: Any
    training: TrainingDefaultsSection = TrainingDefaultsSection()
    restart: RestartSection = RestartSection()
    faults: FaultsSection | None = None
    truth: TruthSection = AS_TOLD
    scale: ScaleSection = ScaleSection()
    objective: ObjectiveSection | None = None
    shares: Annotated[
        dict[Tenant, Annotated[float, number(above=0, at_most=1e6)]], Field(max_length=1000)
    ] = Field(default_factory=dict)
