"""Job files as the commands read them: plain values and the line on which each field stands."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.spec.issues import FieldIssue, SpecError, pointer_of, with_line
from scheduler.spec.yaml_text import read_yaml
from service import limits
from service.cli.api import ProblemError, told
from service.cli.exits import CommandError, Exit, FieldNote


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job document and where its fields stand in `source`."""

    source: str
    document: Any
    lines: dict[str, int]

    def located(self, problem: ProblemError) -> CommandError:
        """The server's refusal with the lines of this file; as it is where it is of no field of the file."""
        if any(error.get("where", "body") != "body" for error in problem.errors):
            return problem
        given = dict(_values(self.document, ()))
        fields = tuple(
            FieldNote(self._place(error["pointer"]), told(error, given.get(error["pointer"])))
            for error in problem.errors
        )
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
        issues = [with_line(issue, parsed.lines) for issue in _issues(parsed.value)]
        if issues:
            raise SpecError(issues, source)
    except SpecError as error:
        raise CommandError(
            f"{source} is not a job file.",
            Exit.USAGE,
            fields=tuple(FieldNote(_spot(source, issue.line), issue.describe()) for issue in error.issues),
        ) from None
    return JobFile(source, parsed.value, parsed.lines)


def _spot(source: str, line: int | None) -> str:
    return source if line is None else f"{source}:{line}"


def _issues(document: Any) -> Iterator[FieldIssue]:
    """What JSON cannot carry to the server, or carries as no job: it is told with its line."""
    if not isinstance(document, dict):
        yield FieldIssue("", document, "a mapping with the fields of a job (docs/jobs.md)")
    for pointer, value in _values(document, ()):
        if isinstance(value, float) and not math.isfinite(value):
            yield FieldIssue(pointer, value, "a finite number")
        elif isinstance(value, int) and abs(value) > limits.MAX_JSON_INTEGER:
            yield FieldIssue(pointer, value, f"a whole number of at most {limits.MAX_JSON_INTEGER}")


def _values(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str, Any]]:
    """Every value of a document with its pointer."""
    yield pointer_of(path), value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in inner:
        yield from _values(entry, (*path, key))
