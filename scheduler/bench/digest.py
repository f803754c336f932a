"""What a study comes to in few figures: each group of cells, each policy, over the base."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from scheduler.bench.comparison import BASE, against, bound_over, usd_per_job_hour_saved, worse_cells
from scheduler.bench.groups import groups_of
from scheduler.bench.pairs import Estimate
from scheduler.bench.results import Row
from scheduler.bench.standing import cells_of, policies_of

HEADLINES: Final = ("jct_mean_s", "jct_p95_s", "electricity_usd", "egress_usd", "paid_usd")
"""The figures of which the digest tells the ratio."""

_BOUNDS: Final = (
    ("jct_strict_s", "jct_mean_s"),
    ("jct_moldable_s", "jct_mean_s"),
    ("electricity_at_once_usd", "electricity_usd"),
)


def digest_of(rows: Sequence[Row], base: str = BASE) -> list[dict[str, Any]]:
    """For each group: its cells, the ratios of every policy with their 95 % intervals (None where nothing can be
    compared), the cells in which it is worse by over one per cent, and the bounds."""
    return [
        {
            "group": name,
            "cells": len(cells),
            "policies": [
                {
                    "policy": policy,
                    "ratios": {figure: _told(against(cells, policy, base, figure)) for figure in HEADLINES},
                    "usd_per_job_hour_saved": usd_per_job_hour_saved(cells, policy, base),
                    "cells_worse": [cell.cell for cell in worse_cells(cells, policy, base)],
                    "cells_left_out": sum(cell.rejects(policy) for cell in cells),
                }
                for policy in policies_of(cells)
            ],
            "bounds": {bound: _told(bound_over(cells, bound, base, figure)) for bound, figure in _BOUNDS},
        }
        for name, cells in groups_of(cells_of(rows)).items()
    ]


def _told(estimate: Estimate | None) -> dict[str, float] | None:
    return None if estimate is None else asdict(estimate)
