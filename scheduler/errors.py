"""The one root of the errors that the planner and its edges raise."""

from __future__ import annotations


class SchedulerError(Exception):
    """Something the planner refuses. `code` is for machines, the message says what would be right."""

    code = "scheduler_error"


class InvalidValueError(SchedulerError, ValueError):
    """A value that cannot be meant: names the field, the value and what would be right."""

    code = "invalid_value"

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field}: {value!r} is not valid: expected {expected}")
        self.field = field
        self.value = value
        self.expected = expected


class UnknownPresetError(InvalidValueError):
    """A preset name nobody knows."""

    code = "unknown_preset"
