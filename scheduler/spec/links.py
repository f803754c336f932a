"""Links between regions from a CSV file: one row for each direction."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from scheduler.cluster import Link, LinkKey
from scheduler.spec.csv_text import CsvTable

BPS_PER_GBPS = 1e9
FIELDS = ("src", "dst", "gbps", "rtt_ms", "egress_usd_per_gb")
_OPTIONAL = "egress_usd_per_gb"
_MS_PER_S = 1e3


def link(src: str, dst: str, gbps: float, rtt_ms: float, egress_usd_per_gb: float) -> Link:
    """A directed link from the units of the files; one-way latency is half the round trip."""
    return Link(src, dst, gbps * BPS_PER_GBPS, rtt_ms / _MS_PER_S / 2, egress_usd_per_gb)


def read_links(table: CsvTable, columns: Mapping[str, str], regions: Collection[str]) -> dict[LinkKey, Link]:
    """The links between `regions`; rows of other regions are left out, pairs without a row have no link.

    `columns` maps a field of FIELDS to the column that holds it, where that is named otherwise. A file without an
    egress column has no egress price. Raises SpecError that names the row of a bad value or a second row of a pair.
    """
    names = {field: columns.get(field, field) for field in FIELDS}
    has_egress = _OPTIONAL in columns or names[_OPTIONAL] in table.columns
    for field, name in names.items():
        if field != _OPTIONAL or has_egress:
            table.index(name)
    links: dict[LinkKey, Link] = {}
    ends = zip(table.cells(names["src"]), table.cells(names["dst"]), strict=True)
    for row, (src, dst) in enumerate(ends):
        if src not in regions or dst not in regions:
            continue
        if src == dst:
            raise table.error(row, names["dst"], dst, "another region than src")
        if (src, dst) in links:
            raise table.error(row, names["src"], f"{src},{dst}", "one row for each pair")
        links[src, dst] = link(
            src,
            dst,
            table.number(row, names["gbps"], least=0),
            table.number(row, names["rtt_ms"], least=0),
            table.number(row, names[_OPTIONAL], least=0) if has_egress else 0.0,
        )
    return links
