"""What is wrong with a document, field by field: where, what was given, and what would be right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scheduler.errors import SchedulerError

_SHOWN = 80  # characters of a bad value that a message repeats; a 10 MB field must not come back whole


@dataclass(frozen=True, slots=True)
class FieldIssue:
    """One field that is wrong. `pointer` is a JSON pointer (RFC 6901); `value` is what was given, as shown."""

    pointer: str
    value: object
    expected: str
    line: int | None = None

    @property
    def field(self) -> str:
        """The pointer as people write it: `training.steps`, `regions.0.price`."""
        return self.pointer.lstrip("/").replace("/", ".") or "document"

    def describe(self) -> str:
        """`training.steps: 0 is not valid: expected a whole number of at least 1`."""
        return f"{self.field}: {show(self.value)} is not valid: expected {self.expected}"


class SpecError(SchedulerError, ValueError):
    """A job file or scenario that cannot be meant; carries every issue found, not only the first."""

    code = "invalid_document"

    def __init__(self, issues: Iterable[FieldIssue], source: str = "document") -> None:
        self.issues = tuple(issues)
        self.source = source
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """One line an issue: `file:line: field: value is not valid: expected …`."""
        return [
            f"{self.source}{f':{issue.line}' if issue.line else ''}: {issue.describe()}"
            for issue in self.issues
        ]


def show(value: object) -> str:
    """The value for a message, cut off where it is long."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return f"a {'mapping' if isinstance(value, dict) else 'list'} of {len(value)}"
    text = repr(value[: _SHOWN + 1]) if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def pointer_of(path: Iterable[str | int]) -> str:
    """A JSON pointer for a path of keys and indices."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def with_line(issue: FieldIssue, lines: Mapping[str, int]) -> FieldIssue:
    """The issue with the line of its field, or of the nearest thing around it that stands in the file."""
    pointer = issue.pointer
    while pointer and pointer not in lines:
        pointer = pointer.rpartition("/")[0]
    return FieldIssue(issue.pointer, issue.value, issue.expected, lines.get(pointer, issue.line))
