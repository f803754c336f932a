"""Reads CSV files with a header, and names the row where something is wrong."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scheduler.spec.issues import FieldIssue, SpecError

MAX_FILE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A table with unique column names. `source` is what messages call the file."""

    source: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def index(self, column: str) -> int:
        """Position of a column. Raises SpecError that names the columns there are."""
        if column not in self.columns:
            expected = f"one of the columns {', '.join(self.columns)}"
            raise SpecError([FieldIssue("/column", column, expected, 1)], self.source)
        return self.columns.index(column)

    def error(self, row: int, column: str, value: object, expected: str) -> SpecError:
        """The error of a cell; `row` counts from 0 after the header, messages count lines of the file."""
        return SpecError([FieldIssue(f"/{column}", value, expected, row + 2)], self.source)

    def number(self, row: int, column: str, *, least: float = -math.inf) -> float:
        """A finite number of at least `least`. Raises SpecError that names the row."""
        text = self.rows[row][self.columns.index(column)]
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= least):
            expected = "a finite number" if least == -math.inf else f"a finite number of at least {least:g}"
            raise self.error(row, column, text, expected)
        return value

    def cells(self, column: str) -> Iterator[str]:
        """The texts of a column, from the first row on."""
        index = self.index(column)
        return (row[index] for row in self.rows)


def read_csv(path: Path) -> CsvTable:
    """Reads a CSV file (gzip where its name ends in .gz). Raises SpecError that names the row."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SpecError(
                [FieldIssue("", path.name, f"a file of at most {MAX_FILE_BYTES} bytes")], str(path)
            )
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as packed:
                content = packed.read(MAX_FILE_BYTES + 1)
        else:
            content = path.read_bytes()
        return parse_csv(content.decode("utf-8-sig"), str(path))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        expected = f"a CSV file in UTF-8 that can be read ({why})"
        raise SpecError([FieldIssue("", path.name, expected)], str(path)) from error


def parse_csv(text: str, source: str) -> CsvTable:
    """Reads CSV text. Every row must have as many cells as the header; empty lines count only at the end."""
    try:
        rows = [tuple(row) for row in csv.reader(io.StringIO(text), strict=True)]
    except csv.Error as error:
        raise SpecError([FieldIssue("", str(error), "valid CSV")], source) from error
    while rows and not rows[-1]:
        rows.pop()  # empty lines at the end say nothing; anywhere else they are a broken row
    if not rows or not rows[0]:
        raise SpecError([FieldIssue("", "nothing", "a header row and data rows", 1)], source)
    header = tuple(name.strip() for name in rows[0])
    if len(set(header)) != len(header):
        raise SpecError([FieldIssue("", ",".join(header), "every column name once", 1)], source)
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            issue = FieldIssue("", f"{len(row)} cells", f"{len(header)} cells as the header has", number)
            raise SpecError([issue], source)
    return CsvTable(source, header, tuple(rows[1:]))
