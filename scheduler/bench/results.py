"""The results of a study: a line of JSON for each run that is done, so that a study goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scheduler.bench.figures import Figures
from scheduler.errors import InvalidValueError

RESULTS = "results.jsonl"


@dataclass(frozen=True, slots=True)
class Row:
    """What a run came to. `parameters` are those of the cell; `code` is a digest of the planner that ran. A run that
    failed has no figures, and `error` says why."""

    key: str
    grid: str
    split: str
    cell: str
    draw: int
    policy: str
    parameters: Mapping[str, Any]
    code: str
    wall_s: float
    figures: Figures = field(default_factory=dict)
    error: str | None = None


class Results:
    """The file of a study. Of two rows with one key the later counts."""

    def __init__(self, folder: Path) -> None:
        """Reads what is there; a line that was not written to its end is dropped.

        Raises InvalidValueError for a file that is no results file.
        """
        self._path = folder / RESULTS
        self._rows: dict[str, Row] = {}
        if self._path.exists():
            self._read()
        else:
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, failures included."""
        return tuple(self._rows.values())

    def done(self) -> frozenset[str]:
        """Keys of the runs that need not be run again."""
        return frozenset(row.key for row in self._rows.values() if row.error is None)

    def add(self, row: Row) -> None:
        """Writes a row through to the file."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row), allow_nan=False) + "\n")
        self._rows[row.key] = row

    def _read(self) -> None:
        content = self._path.read_bytes()
        whole = _whole_lines(content)
        if len(whole) < len(content):
            with self._path.open("r+b") as file:
                file.truncate(len(whole))
        self._rows = _rows_of(whole, self._path)


def read_rows(folder: Path) -> tuple[Row, ...]:
    """What a study has come to so far, whether or not it still runs: the file is left as it is.

    Raises InvalidValueError where there is no results file, or another file in its place.
    """
    path = folder / RESULTS
    if not path.exists():
        raise InvalidValueError("--out", str(folder), f"the folder of a study, with a {RESULTS}")
    return tuple(_rows_of(_whole_lines(path.read_bytes()), path).values())


def _whole_lines(content: bytes) -> bytes:
    """Without a last line that was not written to its end."""
    return content[: content.rfind(b"\n") + 1]


def _rows_of(lines: bytes, path: Path) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for number, line in enumerate(lines.decode("utf-8").splitlines(), start=1):
        try:
            row = Row(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise InvalidValueError("--out", f"{path}:{number}", "a row of a study") from error
        rows[row.key] = row
    return rows
