"""Sets summaries of replays side by side, with ratios against the first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.errors import InvalidValueError
from scheduler.replay.files import SUMMARY

FIGURES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("jct_mean_s", ("jct_s", "mean")),
    ("jct_p95_s", ("jct_s", "p95")),
    ("queueing_mean_s", ("queueing_s", "mean")),
    ("makespan_s", ("makespan_s",)),
    ("energy_kwh", ("energy_kwh",)),
    ("electricity_usd", ("costs_usd", "electricity")),
    ("egress_usd", ("costs_usd", "egress")),
    ("rent_usd", ("costs_usd", "rent")),
    ("owner_paid_usd", ("costs_usd", "owner_paid")),
    ("renter_paid_usd", ("costs_usd", "renter_paid")),
    ("gpu_utilisation", ("gpu_utilisation", "overall")),
    ("rejected", ("jobs", "by_state", "rejected")),
    ("decision_p99_s", ("timing", "decision_s", "p99")),
)
"""Name of a figure and where it stands in summary.json; a figure that is not there counts as 0 or unknown."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One result: its figures, and each of them over that of the first result (None where that cannot be told)."""

    folder: str
    scenario: str
    policy: str
    figures: dict[str, float | None]
    ratios: dict[str, float | None]


def compare(folders: Sequence[Path]) -> list[Compared]:
    """Results in the order given; a folder of several policies stands for all of them, by name.

    Raises InvalidValueError for a folder without a result.
    """
    results = [(folder, _summary(folder)) for given in folders for folder in _results_in(given)]
    first = _figures(results[0][1])
    answer = []
    for folder, summary in results:
        figures = _figures(summary)
        ratios = {name: _ratio(value, first[name]) for name, value in figures.items()}
        answer.append(Compared(str(folder), summary["scenario"], summary["policy"], figures, ratios))
    return answer


def _results_in(folder: Path) -> list[Path]:
    if (folder / SUMMARY).is_file():
        return [folder]
    found = sorted(path.parent for path in folder.glob(f"*/{SUMMARY}"))
    if not found:
        raise InvalidValueError(
            "DIR", str(folder), f"a folder with {SUMMARY}, or one that holds such folders"
        )
    return found


def _summary(folder: Path) -> dict[str, Any]:
    path = folder / SUMMARY
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        if not {"scenario", "policy", "jct_s", "costs_usd"} <= summary.keys():
            raise InvalidValueError("DIR", str(path), "the summary of a replay")
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidValueError("DIR", str(path), "the summary of a replay") from error
    assert isinstance(summary, dict)  # noqa: S101 - it has keys
    return summary


def _figures(summary: dict[str, Any]) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for name, place in FIGURES:
        value: Any = summary
        for key in place:
            value = value.get(key) if isinstance(value, dict) else None
        figures[name] = (0 if name == "rejected" else None) if value is None else value
    return figures


def _ratio(value: float | None, first: float | None) -> float | None:
    return value / first if value is not None and first else None
