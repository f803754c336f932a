"""horizon against the rivals of the paper: BACE-Pipe at the stages that jobs name, and its four baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from scheduler.bench.comparison import against
from scheduler.bench.groups import CONTENTIONS, EGRESS, real_group
from scheduler.bench.headline import OWN
from scheduler.bench.section import Section, Table, change, draws
from scheduler.bench.standing import CellResults

_Groups = Mapping[str, Sequence[CellResults]]

_FIGURES: Final = ("jct_mean_s", "electricity_usd", "egress_usd", "paid_usd")
_HEAD: Final = ("draws", "JCT", "electricity", "egress", "paid", "goal")
_NAMED: Final = "bace-k0"
_ONE_REGION: Final = ("lcf", "ldf")
_CROSSING: Final = ("cr-lcf", "cr-ldf")
_TOP, _BOTTOM = "JCT −64.7, electricity −30.6", "JCT −27.9, electricity −12.6"
"""Both ends of what the paper found."""
_HELIOS: Final = "R: helios-x1.5"


def against_named(groups: _Groups) -> Section:
    """horizon against BACE-Pipe that gives no more stages than jobs name, in grid R."""
    names = [real_group(contention, backbone) for contention in CONTENTIONS for backbone in EGRESS]
    goals = {
        real_group(contention, backbone): "JCT −25, electricity −18"
        for contention in ("moderate", "contended")
        for backbone in EGRESS
    }
    rows = _rows(groups, [(name, _NAMED, goals.get(name, "")) for name in names])
    return Section(
        f"{OWN} against {_NAMED}, in R",
        "Changes in per cent: what is left where a job gets no more than it asks for.",
        (Table(("cells", *_HEAD), tuple((row[0], *row[2:]) for row in rows)),),
    )


def against_baselines(groups: _Groups) -> Section:
    """horizon against LCF, LDF, CR-LCF and CR-LDF, beside the ends of what the paper found for BACE-Pipe."""
    asked = [
        (f"{name}{egress}", rival, _real_goal(name, rival))
        for name, egress in [
            (place, f", {word}") for place in ("R: contended", _HELIOS) for word in EGRESS.values()
        ]
        for rival in (*_ONE_REGION, *_CROSSING)
    ]
    for name in ("P: all", "P: 24 jobs"):
        asked += [(name, rival, "JCT −27.9 … −64.7, paid −5") for rival in _ONE_REGION]
        asked += [(name, rival, "JCT −27.9 … −64.7, paid −20") for rival in _CROSSING]
    asked += [("W: all", rival, "") for rival in (*_ONE_REGION, *_CROSSING)]
    return Section(
        f"{OWN} against the baselines of the paper",
        "Changes in per cent; the goals are what the paper found for BACE-Pipe, at its ends.",
        (Table(("cells", "against", *_HEAD), tuple(_rows(groups, asked))),),
    )


def _real_goal(name: str, rival: str) -> str:
    """The top pair against all four on Helios and against those that cross elsewhere, the bottom pair otherwise."""
    return _TOP if rival in _CROSSING or name == _HELIOS else _BOTTOM


def _rows(groups: _Groups, asked: Sequence[tuple[str, str, str]]) -> list[tuple[str, ...]]:
    """A row for each (group, rival, goal) that can be told."""
    rows = []
    for name, rival, goal in asked:
        ratios = [against(groups.get(name, ()), OWN, rival, figure) for figure in _FIGURES]
        if ratios[0] is not None:
            rows.append((name, rival, draws(ratios[0]), *map(change, ratios), goal))
    return rows
