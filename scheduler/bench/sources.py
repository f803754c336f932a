"""The real data that grids are made of, read from a folder that the project does not hold.

The folder is the one of BACE_DATA_DIR: `scenarios/` and `data/` with the files named below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from scheduler.spec.csv_text import read_csv
from scheduler.spec.scenario import Scenario, load_scenario

_WAN = "data/network/dtfm_aws_matrix.csv"
_EGRESS = "data/network/skyplane_egress_usd_per_gb.csv"
_EGRESS_COLUMN = "usd_per_gb_2023_02"
_AWS = "aws:"
_MS_PER_S = 1e3
_BPS_PER_GBPS = 1e9

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class WanPath:
    """One direction between two places as it was measured: one-way latency, and the rate of one TCP flow."""

    latency_s: float
    rate_bps: float


@dataclass(frozen=True, slots=True)
class Sources:
    """The folder, and what is read from it."""

    folder: Path

    def wan(self) -> Mapping[Pair, WanPath]:
        """Paths between cities (DT-FM, arXiv 2206.01288), both ways alike. Its "delay" is a round trip."""
        return _wan(self.folder / _WAN)

    def egress_usd_per_gb(self) -> Mapping[Pair, float]:
        """List price of a GB from one AWS region to another (Skyplane), as of February 2023."""
        return _egress(self.folder / _EGRESS)

    def scenario(self, name: str) -> Scenario:
        """A scenario of real regions, by the name of its file."""
        return _scenario(self.folder / "scenarios" / f"{name}.yaml")

    def trace(self, name: str) -> Path:
        """A file of traced jobs."""
        return self.folder / "data" / "traces" / f"{name}.csv"


@lru_cache(maxsize=4)
def _wan(path: Path) -> Mapping[Pair, WanPath]:
    table = read_csv(path)
    paths: dict[Pair, WanPath] = {}
    for row, (a, b) in enumerate(zip(table.cells("a"), table.cells("b"), strict=True)):
        latency_s = table.number(row, "delay_ms", least=0) / _MS_PER_S / 2
        paths[a, b] = paths[b, a] = WanPath(
            latency_s, table.number(row, "bandwidth_gbps", least=0) * _BPS_PER_GBPS
        )
    return paths


@lru_cache(maxsize=4)
def _egress(path: Path) -> Mapping[Pair, float]:
    table = read_csv(path)
    prices: dict[Pair, float] = {}
    ends = zip(table.cells("src"), table.cells("dst"), table.cells(_EGRESS_COLUMN), strict=True)
    for row, (src, dst, price) in enumerate(ends):
        if price and src.startswith(_AWS) and dst.startswith(_AWS):
            pair = src.removeprefix(_AWS), dst.removeprefix(_AWS)
            prices[pair] = table.number(row, _EGRESS_COLUMN, least=0)
    return prices


@lru_cache(maxsize=8)
def _scenario(path: Path) -> Scenario:
    return load_scenario(path)
