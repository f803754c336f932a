"""How far policies are from what no policy can beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from scheduler.bench.comparison import over_bound
from scheduler.bench.frontier import FRONTIER_GROUPS
from scheduler.bench.headline import OWN
from scheduler.bench.section import Section, Table, change, draws
from scheduler.bench.standing import CellResults

_BOUNDS: Final = (
    ("JCT, strict", "jct_mean_s", "jct_strict_s"),
    ("moldable", "jct_mean_s", "jct_moldable_s"),
    ("alone", "jct_mean_s", "jct_alone_s"),
    ("electricity, at once", "electricity_usd", "electricity_at_once_usd"),
    ("shifted", "electricity_usd", "electricity_shifted_usd"),
)


def from_bounds(groups: Mapping[str, Sequence[CellResults]], base: str) -> Section:
    """horizon and the base over each bound."""
    rows = []
    for name in FRONTIER_GROUPS:
        for policy in (OWN, base):
            cells = groups.get(name, ())
            ratios = [over_bound(cells, policy, figure, bound) for _, figure, bound in _BOUNDS]
            if ratios[0] is not None:
                rows.append((name, policy, draws(ratios[0]), *map(change, ratios)))
    return Section(
        "Distance to the bounds",
        "Per cent above each lower bound (see The bounds). Not all of that can be had: the bounds know neither gangs "
        "nor "
        "regions nor links.",
        (Table(("cells", "policy", "draws", *(title for title, _, _ in _BOUNDS)), tuple(rows)),),
    )
