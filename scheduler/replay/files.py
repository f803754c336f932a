"""Writes what a replay leaves behind: a folder for each policy, complete or not there."""

from __future__ import annotations

import csv
import json
import shutil
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from scheduler.errors import InvalidValueError
from scheduler.replay.metrics import summary_of
from scheduler.replay.records import AllocationRow, JobRow, LinkRow, ReplayResult
from scheduler.replay.report import report_html
from scheduler.spec.scenario import Scenario

SUMMARY = "summary.json"
_STAGING = ".partial-"


class OutputFolder:
    """DIR of a replay. Policies are staged beside their final place and moved there together at the end."""

    def __init__(self, folder: Path, policies: Iterable[str]) -> None:
        """Raises InvalidValueError where a result would overwrite something that is no result of a replay."""
        self._folder = folder
        # on the same file system as the result, and in a folder that is there already: a failure leaves nothing
        beside = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir())
        self._staging = beside / f"{_STAGING}{uuid.uuid4().hex[:12]}"
        if folder.exists() and not folder.is_dir():
            raise InvalidValueError("--out", str(folder), "a folder")
        for policy in policies:
            target = folder / policy
            if target.exists() and not (target / SUMMARY).is_file():
                raise InvalidValueError(
                    "--out", str(target), "a place that is free or holds an earlier result of a replay"
                )

    def stage(self, scenario: Scenario, result: ReplayResult) -> dict[str, Any]:
        """Writes the files of one policy where nobody looks yet; answers the summary."""
        summary = summary_of(scenario, result)
        target = self._staging / result.policy
        target.mkdir(parents=True)
        _write_rows(target / "jobs.csv", JobRow, result.jobs)
        _write_rows(target / "allocations.csv", AllocationRow, result.allocations)
        _write_rows(target / "links.csv", LinkRow, result.links)
        (target / SUMMARY).write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        (target / "report.html").write_text(report_html(scenario, result, summary), encoding="utf-8")
        return summary

    def publish(self) -> None:
        """Moves everything staged to its place, in the stead of earlier results."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for staged in sorted(self._staging.iterdir()):
            target = self._folder / staged.name
            if target.exists():
                target.rename(self._staging / f"{_STAGING}{staged.name}")  # a rename cannot replace a folder
            staged.rename(target)
        self.discard()

    def discard(self) -> None:
        """Removes what is staged."""
        shutil.rmtree(self._staging, ignore_errors=True)


def _write_rows(path: Path, kind: type, rows: Sequence[Any]) -> None:
    """A CSV with a header; floats in full (the shortest text that reads back to the same number), None as empty."""
    names = [field.name for field in fields(kind)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_cell(getattr(row, name)) for name in names] for row in rows)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else str(value)
