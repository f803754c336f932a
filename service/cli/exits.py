"""How `bace` ends: the exit codes, and the one error that commands raise to end with one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Exit(IntEnum):
    """What the exit code of every command means (the table of docs/cli.md)."""

    OK = 0
    FAILED = 1  # the operation, the job or a check of `doctor` failed
    USAGE = 2  # bad input: an option, a file, or a document that the server refused
    NOT_FOUND = 3  # no such object, or an id prefix that fits several
    UNAUTHORISED = 4  # no token, a bad one, or a role that may not do this
    UNREACHABLE = 5  # no server answers at the address
    INTERRUPTED = 130  # Ctrl-C


@dataclass(frozen=True, slots=True)
class FieldNote:
    """One field that is wrong: where (JSON pointer, or empty), and what is wrong with it."""

    pointer: str
    detail: str


class CommandError(Exception):
    """Ends a command: what is wrong, the fields concerned, and what to do about it."""

    def __init__(
        self,
        message: str,
        exit_code: Exit = Exit.FAILED,
        *,
        fields: tuple[FieldNote, ...] = (),
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.fields = fields
        self.hint = hint
