"""The outcomes of a study: one JSON object a line, so that a study goes on where it was stopped, and their table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev

from agents.worker.study.cases import Case
from agents.worker.study.training import Outcome


def read(path: Path) -> list[Outcome]:
    """The outcomes in a file; none if there is no file. Raises ValueError naming the line that is none."""
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            found.append(Outcome(**json.loads(line)))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{path}, line {number}: {error}; it must be an outcome of this study"
            ) from error
    return found


def line(outcome: Outcome) -> str:
    """An outcome as it stands in a file."""
    return json.dumps(asdict(outcome))


def table(cases: Sequence[Case], outcomes: Iterable[Outcome]) -> str:
    """Markdown: loss and gap to the synchronous case of the same optimizer and seed, mean and standard deviation."""
    by_case: dict[str, dict[int, Outcome]] = {}
    for outcome in outcomes:
        by_case.setdefault(outcome.case, {})[outcome.seed] = outcome
    rows = [
        "| case | seeds | loss | gap to synchronous | gap, % | drift | Ŵ off |",
        "|---|---|---|---|---|---|---|",
    ]
    synchronous: dict[int, Outcome] = {}
    for case in cases:
        runs = by_case.get(case.name, {})
        if case.is_synchronous:
            synchronous = runs
        gaps = [runs[seed].loss - synchronous[seed].loss for seed in runs if seed in synchronous]
        if not gaps:
            continue
        losses = [run.loss for run in runs.values()]
        relative = 100 * fmean(gaps) / fmean(synchronous[seed].loss for seed in runs if seed in synchronous)
        ratio = fmean(run.prediction_ratio for run in runs.values())
        rows.append(
            f"| {case.name} | {len(runs)} | {fmean(losses):.4f} ± {_spread(losses):.4f} "
            f"| {fmean(gaps):+.4f} ± {_spread(gaps):.4f} | {relative:+.1f} "
            f"| {max(run.drift for run in runs.values())} | {ratio:.2f} |"
        )
    return "\n".join(rows)


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
