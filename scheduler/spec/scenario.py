"""Scenario files: a cluster, its prices and its jobs, read whole and checked before anything runs.

`load_scenario` answers a Scenario or raises a SpecError whose issues name file, line, field, value and what would
be right. Paths in a scenario are relative to its file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from scheduler.cluster import Cluster, GpuType, Link, LinkKey, Ownership, Pool, PoolKey, Region, RestartCosts
from scheduler.errors import InvalidValueError, UnknownPresetError
from scheduler.objective import Objective
from scheduler.presets import gpu as gpu_preset
from scheduler.price import PriceSeries
from scheduler.spec.csv_text import read_csv
from scheduler.spec.issues import FieldIssue, SpecError, pointer_of, with_line
from scheduler.spec.links import BPS_PER_GBPS, link, read_links
from scheduler.spec.prices import PriceTable, repeated_daily
from scheduler.spec.scenario_document import (
    AS_TOLD,
    FaultsSection,
    GpuSection,
    LinkSection,
    LinksFileSection,
    ObjectiveSection,
    PriceSection,
    RegionSection,
    ScaleSection,
    ScenarioDocument,
    TrainingDefaultsSection,
    TruthSection,
)
from scheduler.spec.scenario_jobs import JobSource, read_jobs
from scheduler.spec.validation import issues_of
from scheduler.spec.yaml_text import read_yaml

_ALMOST = 1e-9  # 8 × 0.125 must stay 1 however the product is rounded
_Section = TypeVar("_Section", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """How nodes fail; `trace` is the resolved path where that tells it. Read when the replay begins."""

    section: FaultsSection
    trace: Path | None


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario as the replay runs it.

    `cluster` is scaled already. `electricity` has a series for each region, USD per kWh over epoch seconds, and
    `price_sources` says where it is from, for messages. `start_s` is in epoch seconds. `truth` is where the world
    differs from `cluster`, which is what policies see.
    """

    name: str
    path: Path
    start_s: float
    cluster: Cluster
    electricity: Mapping[str, PriceSeries]
    price_sources: Mapping[str, str]
    jobs: JobSource
    training: TrainingDefaultsSection
    scale: ScaleSection
    faults: FaultPlan | None = None
    truth: TruthSection = AS_TOLD
    shares: Mapping[str, float] = field(default_factory=dict)
    """Weight of each tenant that has one."""
    objective: Objective = field(default_factory=Objective)
    """What it is to be good at, where nobody says otherwise."""


def load_scenario(path: str | Path) -> Scenario:
    """Reads a scenario file and the price and link files that it names. Raises SpecError with every issue found."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        issue = FieldIssue("", error.strerror or str(error), "a scenario file that can be read")
        raise SpecError([issue], str(path)) from error
    text = read_yaml(content, str(path))
    if not isinstance(text.value, dict):
        issue = FieldIssue("", text.value, "a mapping with start, regions, links, jobs …", 1)
        raise SpecError([issue], str(path))
    reader = _Reader(path)
    scenario = reader.read(text.value)
    if scenario is None:
        raise SpecError((with_line(issue, text.lines) for issue in reader.issues), str(path))
    return scenario


@dataclass(slots=True)
class _Reader:
    """Collects issues over all sections, so that a user sees them at once."""

    path: Path
    issues: list[FieldIssue] = field(default_factory=list)
    tables: dict[Path, PriceTable] = field(default_factory=dict)

    def read(self, value: dict[str, Any]) -> Scenario | None:
        document = self.section(ScenarioDocument, value, ())
        if document is None:
            return None
        gpu_types = self._gpu_types(document)
        regions: dict[str, Region] = {}
        pools: dict[PoolKey, Pool] = {}
        electricity: dict[str, PriceSeries] = {}
        for index, section in enumerate(document.regions):
            at = ("regions", index)
            if section.name in regions:
                self.issue((*at, "name"), section.name, "every region once")
                continue
            regions[section.name] = _region(section)
            pools.update({pool.key: pool for pool in _pools(section, document.scale.gpus)})
            series = self._price(section.price, document.start, (*at, "price"))
            if series is not None:
                electricity[section.name] = series
        links = self._links(document, regions)
        jobs = read_jobs(document.jobs, document.training, regions, self)
        restart: RestartCosts | None = self.attempt(("restart",), document.restart.costs)
        faults = None if document.faults is None else self._faults(document.faults)
        if self.issues or jobs is None or restart is None:
            return None
        return Scenario(
            name=document.name or self.path.stem,
            path=self.path,
            start_s=document.start,
            cluster=Cluster(gpu_types, regions, pools, links, restart=restart),
            electricity=electricity,
            price_sources={section.name: _source_of(section.price) for section in document.regions},
            jobs=jobs,
            training=document.training,
            scale=document.scale,
            faults=faults,
            truth=document.truth,
            shares=document.shares,
            objective=_objective(document.objective),
        )

    def issue(self, at: tuple[str | int, ...], value: object, expected: str) -> None:
        """Notes what is wrong at a place of the scenario."""
        self.issues.append(FieldIssue(pointer_of(at), value, expected))

    def section(self, kind: type[_Section], value: object, at: tuple[str | int, ...]) -> _Section | None:
        """Reads a value as a section, or notes what is wrong with it."""
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            prefix = pointer_of(at)
            self.issues.extend(
                replace(issue, pointer=prefix + issue.pointer) for issue in issues_of(error, kind)
            )
            return None

    def resolve(self, relative: str) -> Path:
        """A path of the scenario, from the folder of its file."""
        return self.path.parent / relative

    def attempt(self, at: tuple[str | int, ...], work: Callable[[], Any]) -> Any:
        """Runs `work`; what it refuses becomes an issue of the scenario that keeps the inner file's place."""
        try:
            return work()
        except SpecError as error:
            for issue in error.issues:
                line = "" if issue.line is None else f":{issue.line}: {issue.field}"
                self.issue(at, issue.value, f"{issue.expected} ({error.source}{line})")
        except InvalidValueError as error:
            self.issue(at, error.value, f"{error.expected} ({error.field})")
        return None

    def _gpu_types(self, document: ScenarioDocument) -> dict[str, GpuType]:
        types: dict[str, GpuType] = {}
        for name, section in document.gpus.items():
            kind = self.attempt(("gpus", name), partial(_gpu_type, name, section))
            if kind is not None:
                types[name] = kind
        for index, region in enumerate(document.regions):
            for name in region.gpus:
                if name in types or name in document.gpus:
                    continue
                preset = _preset(name)
                if preset is None:
                    known = ", ".join(sorted(document.gpus)) or "none"
                    expected = f"a GPU type of the section gpus ({known}) or a preset"
                    self.issue(("regions", index, "gpus", name), name, expected)
                else:
                    types[name] = preset
        return types

    def _price(self, price: PriceSection, start_s: float, at: tuple[str | int, ...]) -> PriceSeries | None:
        given = [
            name for name in ("usd_per_kwh", "hourly_usd_per_kwh", "csv") if getattr(price, name) is not None
        ]
        if len(given) != 1:
            expected = "exactly one of usd_per_kwh, hourly_usd_per_kwh and csv"
            self.issue(at, given or None, expected)
            return None
        for name in ("column", "unit", "known"):
            value = getattr(price, name)
            if price.csv is None and value is not None:
                self.issue((*at, name), value, f"nothing: it belongs to csv, not to {given[0]}")
            if price.csv is not None and value is None:
                self.issue((*at, name), None, f"a value: {name} is required with csv")
        if price.usd_per_kwh is not None:
            return PriceSeries.flat(price.usd_per_kwh)
        if price.hourly_usd_per_kwh is not None:
            return repeated_daily(tuple(price.hourly_usd_per_kwh), start_s)
        if price.csv is None or price.column is None or price.unit is None or price.known is None:
            return None
        csv, column, unit, known = price.csv, price.column, price.unit, price.known
        table = self.attempt((*at, "csv"), lambda: self._price_table(csv))
        if table is None:
            return None
        series: PriceSeries | None = self.attempt((*at, "column"), lambda: table.series(column, unit, known))
        if series is not None and series.at(start_s) is None:
            self.issue((*at, "csv"), price.csv, "a file that has a price at the scenario's start")
        return series

    def _price_table(self, relative: str) -> PriceTable:
        path = self.resolve(relative)
        if path not in self.tables:
            self.tables[path] = PriceTable(read_csv(path))
        return self.tables[path]

    def _faults(self, section: FaultsSection) -> FaultPlan:
        if (section.trace is None) == (section.generator is None):
            self.issue(("faults",), None, "exactly one of trace and generator")
        if section.trace is None:
            for name in ("nodes", "skip"):
                if name in section.model_fields_set:
                    self.issue(("faults", name), getattr(section, name), "nothing: it belongs to trace")
        generator = section.generator
        if generator is not None and not (generator.mean_between > 0 and generator.mean_repair > 0):
            expected = "durations above 0 for mean_between and mean_repair"
            self.issue(("faults", "generator"), generator.mean_between, expected)
        path = None if section.trace is None else self.resolve(section.trace)
        if path is not None and not path.is_file():
            expected = f"a trace of faults that is there ({path} is no file)"
            self.issue(("faults", "trace"), section.trace, expected)
        return FaultPlan(section, path)

    def _links(self, document: ScenarioDocument, regions: Mapping[str, Region]) -> dict[LinkKey, Link]:
        links: dict[LinkKey, Link] = {}
        if isinstance(document.links, dict):
            section = self.section(LinksFileSection, document.links, ("links",))
            if section is not None:
                at = ("links", "csv")
                read = self.attempt(
                    at, lambda: read_links(read_csv(self.resolve(section.csv)), section.columns, regions)
                )
                links = read or {}
        elif isinstance(document.links, list):
            for index, value in enumerate(document.links):
                self._add_link(value, ("links", index), regions, links)
        else:
            self.issue(("links",), document.links, "a list of links, or csv with columns")
        scale = document.scale.bandwidth
        return {key: replace(one, capacity_bps=one.capacity_bps * scale) for key, one in links.items()}

    def _add_link(
        self,
        value: object,
        at: tuple[str | int, ...],
        regions: Mapping[str, Region],
        links: dict[LinkKey, Link],
    ) -> None:
        section = self.section(LinkSection, value, at)
        if section is None:
            return
        for end in ("src", "dst"):
            if getattr(section, end) not in regions:
                self.issue(
                    (*at, end), getattr(section, end), f"a region of this scenario: {', '.join(regions)}"
                )
                return
        if (section.src, section.dst) in links:
            self.issue(at, f"{section.src} -> {section.dst}", "one link for each direction")
            return
        made: Link | None = self.attempt(
            at,
            lambda: link(section.src, section.dst, section.gbps, section.rtt_ms, section.egress_usd_per_gb),
        )
        if made is not None:
            links[made.key] = made


def _gpu_type(name: str, section: GpuSection) -> GpuType:
    preset = _preset(name)
    optional = {}
    for attribute, gbps in (
        ("intra_region_bps", section.intra_region_gbps),
        ("memory_bps", section.memory_gbps),
    ):
        if gbps is not None:
            optional[attribute] = gbps * BPS_PER_GBPS
        elif preset is not None:
            optional[attribute] = getattr(preset, attribute)
    return GpuType(
        name=name,
        sustained_flops=section.tflops * 1e12 * section.mfu,
        memory_bytes=section.memory,
        power_w=section.power_w,
        idle_w=section.power_w if section.idle_w is None else section.idle_w,
        **optional,
    )


def _preset(name: str) -> GpuType | None:
    try:
        return replace(gpu_preset(name), name=name)
    except UnknownPresetError:
        return None


def _region(section: RegionSection) -> Region:
    return Region(
        name=section.name,
        pue=section.pue,
        uplink_bps=math.inf if section.uplink_gbps is None else section.uplink_gbps * BPS_PER_GBPS,
        downlink_bps=math.inf if section.downlink_gbps is None else section.downlink_gbps * BPS_PER_GBPS,
    )


def _pools(section: RegionSection, scale: float) -> list[Pool]:
    rent = section.rent_usd_per_gpu_hour
    ownership = Ownership.RENTED if rent > 0 else Ownership.OWNED
    return [
        Pool(section.name, gpu_type, math.floor(count * scale + _ALMOST), ownership, rent)
        for gpu_type, count in section.gpus.items()
    ]


def _objective(section: ObjectiveSection | None) -> Objective:
    return Objective() if section is None else Objective(section.weight_jct, section.cheapest_within)


def _source_of(price: PriceSection) -> str:
    return f"{price.csv}, column {price.column}" if price.csv is not None else "the scenario's own price"
