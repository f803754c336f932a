"""The figures beside mean completion time and money, of every policy in the groups of the frontier."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from scheduler.bench.comparison import against, usd_per_job_hour_saved
from scheduler.bench.entries import KNOB_SEPARATOR
from scheduler.bench.frontier import FRONTIER_GROUPS
from scheduler.bench.section import NONE, Section, Table, draws, point
from scheduler.bench.standing import CellResults, policies_of

_RELATIVE: Final = (("p95 JCT, %", "jct_p95_s"), ("GPU-weighted JCT, %", "jct_gpu_weighted_s"))
_ABSOLUTE: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("slowdown", "slowdown_mean", lambda value: f"{value:.2f}"),
    ("fairness", "fairness_worst", lambda value: f"{value:.2f}"),
    ("p99 wait, h", "tenant_wait_p99_worst_s", lambda value: f"{value / 3600:.2f}"),
    ("wait of gangs, h", "gang_wait_mean_s", lambda value: f"{value / 3600:.2f}"),
    ("utilisation, %", "gpu_utilisation", lambda value: f"{100 * value:.0f}"),
    ("decision p50, ms", "decision_p50_s", lambda value: f"{1000 * value:.1f}"),
    ("p99, ms", "decision_p99_s", lambda value: f"{1000 * value:.1f}"),
)


def other_figures(groups: Mapping[str, Sequence[CellResults]], base: str) -> Section:
    """A table for each group: tails, fairness, waits, utilisation, and the time of a decision."""
    return Section(
        "Other figures",
        f"The changes of JCT are against {base}; the others are means over draws, then over cells, of those that "
        f"{base} "
        "has as well. Fairness and p99 wait are of the worst tenant, gangs name 64 GPUs and more; $ per job-hour "
        "saved is "
        f"what more is paid than under {base} for an hour of completion time less (below 0: less is paid as well).",
        tuple(_table(name, groups[name], base) for name in FRONTIER_GROUPS if name in groups),
    )


def _table(name: str, cells: Sequence[CellResults], base: str) -> Table:
    rows = [
        (
            policy,
            draws(jct),
            *(point(against(cells, policy, base, figure)) for _, figure in _RELATIVE),
            *(_mean(cells, policy, base, figure, told) for _, figure, told in _ABSOLUTE),
            _saved(cells, policy, base),
        )
        for policy in policies_of(cells)
        if KNOB_SEPARATOR not in policy
        for jct in [against(cells, policy, base, "jct_mean_s")]
        if jct is not None
    ]
    head = (
        "policy",
        "draws",
        *(title for title, _ in _RELATIVE),
        *(title for title, _, _ in _ABSOLUTE),
        "$ per job-hour saved",
    )
    return Table(head, tuple(rows), name)


def _mean(
    cells: Sequence[CellResults], policy: str, base: str, figure: str, told: Callable[[float], str]
) -> str:
    """Over the cells in which neither rejects a job."""
    means = []
    for cell in cells:
        values = cell.values(policy, figure)
        common = [values[draw] for draw in sorted(values.keys() & cell.by_policy.get(base, {}).keys())]
        if common and not cell.rejects(policy) and not cell.rejects(base):
            means.append(math.fsum(common) / len(common))
    return told(math.fsum(means) / len(means)) if means else NONE


def _saved(cells: Sequence[CellResults], policy: str, base: str) -> str:
    price = usd_per_job_hour_saved(cells, policy, base)
    return NONE if price is None else f"{price:.2f}".replace("-", "−")
