"""Job files as the commands read them: plain values and the line on which each field stands."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.spec.issues import SpecError, pointer_of
from scheduler.spec.yaml_text import read_yaml
from service.cli.api import ProblemError
from service.cli.exits import CommandError, Exit, FieldNote


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job document and where its fields stand in `source`."""

    source: str
    document: Any
    lines: dict[str, int]

    def located(self, problem: ProblemError) -> CommandError:
        """The server's refusal with the lines of this file."""
        fields = tuple(FieldNote(self._place(note.pointer), note.detail) for note in problem.fields)
        return CommandError(problem.message, problem.exit_code, fields=fields, hint=problem.hint)

    def _place(self, pointer: str) -> str:
        near = pointer
        while near and near not in self.lines:
            near = near.rpartition("/")[0]
        line = self.lines.get(near)
        return f"{self.source}:{line}: {pointer}" if line is not None else pointer


def read_job_file(path: str) -> JobFile:
    """Read a job file (YAML or JSON); `-` is standard input. Raises CommandError (USAGE) that names the place."""
    source = "standard input" if path == "-" else path
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}", Exit.USAGE) from None
    try:
        parsed = read_yaml(content, source)
    except SpecError as error:
        raise CommandError(
            f"{source} is not a job file.",
            Exit.USAGE,
            fields=tuple(FieldNote(_spot(source, issue.line), issue.describe()) for issue in error.issues),
        ) from None
    numberless = _not_numbers(parsed.value, ())
    if numberless:
        raise CommandError(
            f"{source} is not a job file.",
            Exit.USAGE,
            fields=tuple(
                FieldNote(_spot(source, parsed.lines.get(pointer)), f"{pointer}: expected a finite number")
                for pointer in numberless
            ),
        )
    return JobFile(source, parsed.value, parsed.lines)


def _spot(source: str, line: int | None) -> str:
    return source if line is None else f"{source}:{line}"


def _not_numbers(value: Any, path: tuple[str | int, ...]) -> list[str]:
    """Pointers of NaN and infinity, which JSON cannot carry to the server."""
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in _not_numbers(inner, (*path, key))]
    if isinstance(value, list):
        return [found for index, inner in enumerate(value) for found in _not_numbers(inner, (*path, index))]
    return [pointer_of(path)] if isinstance(value, float) and not math.isfinite(value) else []
