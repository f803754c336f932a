"""Reads a worker's output from where it was read before, at a bounded rate, into log reports.

Line numbers are those of the output itself. Lines that are left out, because there were too many at once or
because their segment is gone, are counted, and one line says so in the place of the first of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from agents.outputlog import segment_name, segments
from agents.state import LogPosition
from agents.text import line_of
from agents.workdir import ProcessFolder

LINES_PER_SECOND = 200.0
BURST_LINES = 2000
READ_BYTES = 512 * 1024
REPORT_LINES = 200
LAST_LINES = 40
_LAST_BYTES = 64 * 1024


class LineRate:
    """A bucket of lines that fills at `LINES_PER_SECOND` up to `BURST_LINES`."""

    def __init__(self, now_s: float) -> None:
        self._level = float(BURST_LINES)
        self._at_s = now_s

    def take(self, wanted: int, now_s: float) -> int:
        """How many of the wanted lines may go now."""
        self._level = min(BURST_LINES, self._level + (now_s - self._at_s) * LINES_PER_SECOND)
        self._at_s = now_s
        granted = min(wanted, int(self._level))
        self._level -= granted
        return granted


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines of the output, from number `first_line`."""

    first_line: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogRead:
    """What was read, and where to go on. `more`: there is more to read at once."""

    position: LogPosition
    pieces: tuple[Lines, ...]
    more: bool


def read_output(
    folder: ProcessFolder, position: LogPosition, rate: LineRate, now_s: float, ended: bool
) -> LogRead:
    """The next whole lines of the output: up to `READ_BYTES` of them, from one segment.

    At the end of a process its last lines go whatever the rate is.
    """
    log = folder.open_log()
    if log is None:
        return LogRead(position, (), False)
    try:
        present = segments(log)
        if not present or present[-1] < position.segment:
            return LogRead(position, (), False)
        lost: tuple[Lines, ...] = ()
        if position.segment not in present:
            segment = min(first for first in present if first > position.segment)
            lost = (_left_out(position.line, segment - position.line),)
            position = LogPosition(segment=segment, offset=0, line=segment)
        data = _whole_lines(log, position)
        later = [first for first in present if first > position.segment]
        if not data and later:
            position = LogPosition(segment=later[0], offset=0, line=later[0])
        raw = data.split(b"\n")[:-1]
        after = LogPosition(
            segment=position.segment, offset=position.offset + len(data), line=position.line + len(raw)
        )
        pieces = (*lost, *_pieces(position.line, raw, rate.take(len(raw), now_s), ended))
        return LogRead(after, pieces, bool(data) or bool(later))
    finally:
        os.close(log)


def last_lines(folder: ProcessFolder) -> tuple[str, ...]:
    """The last lines of the output, oldest first, whatever was shipped before."""
    log = folder.open_log()
    if log is None:
        return ()
    try:
        tail = b""
        for first_line in reversed(segments(log)):
            tail = _end_of(log, first_line) + tail
            if tail.count(b"\n") > LAST_LINES:
                break
        return tuple(line_of(line) for line in tail.split(b"\n")[:-1][-LAST_LINES:])
    finally:
        os.close(log)


def _whole_lines(log: int, position: LogPosition) -> bytes:
    with _open(log, position.segment) as file:
        file.seek(position.offset)
        data = file.read(READ_BYTES)
    return data[: data.rfind(b"\n") + 1]


def _end_of(log: int, first_line: int) -> bytes:
    with _open(log, first_line) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
        return file.read()


def _open(log: int, first_line: int) -> BinaryIO:
    file = os.open(segment_name(first_line), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=log)
    return os.fdopen(file, "rb")


def _pieces(first_line: int, raw: list[bytes], granted: int, ended: bool) -> Iterator[Lines]:
    last = len(raw) if granted == len(raw) or not ended else max(granted + 1, len(raw) - LAST_LINES)
    yield from _reports(first_line, raw[:granted])
    if granted < len(raw):
        yield _left_out(first_line + granted, last - granted)
    yield from _reports(first_line + last, raw[last:])


def _reports(first_line: int, raw: list[bytes]) -> Iterator[Lines]:
    for start in range(0, len(raw), REPORT_LINES):
        yield Lines(first_line + start, tuple(line_of(line) for line in raw[start : start + REPORT_LINES]))


def _left_out(first_line: int, count: int) -> Lines:
    return Lines(first_line, (f"[agent: {count} lines left out here: there were more than can be kept]",))
