"""What a worker writes, on disk: segments of whole lines, each named by the number of its first line.

Only the newest segments are kept, so a worker that floods its output cannot fill the disk, and its last lines
are always there. A reader that comes late sees from the next segment's name how many lines it has missed.

Only the standard library: supervisors import this and must start quickly.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

SEGMENT_BYTES = 4 * 1024 * 1024
SEGMENTS_KEPT = 4
LINE_BYTES = 16 * 1024
"""A longer line is cut into several."""

MASK = b"[secret]"
_NOTHING = rb"(?!)"
_SEGMENT_NAME = re.compile(r"^(\d{12})\.log$")


def segment_name(first_line: int) -> str:
    """File name of the segment that begins with line `first_line` (from 0)."""
    return f"{first_line:012d}.log"


def segments(directory: int) -> list[int]:
    """First line numbers of the segments in an open directory, oldest first."""
    matches = (_SEGMENT_NAME.match(name) for name in os.listdir(directory))
    return sorted(int(match.group(1)) for match in matches if match)


class OutputLog:
    """Writes the output of one worker into an open directory, secrets masked.

    Where the disk takes nothing more, output is left out rather than the worker stopped.
    """

    def __init__(self, directory: int, secrets: Sequence[bytes] = ()) -> None:
        self._directory = directory
        longest_first = sorted((s for s in secrets if s), key=len, reverse=True)
        self._secrets = re.compile(b"|".join(map(re.escape, longest_first)) or _NOTHING)
        self._longest_secret = len(longest_first[0]) if longest_first else 0
        self._rest = b""
        self._line = 0
        self._segment: int | None = None
        self._segment_bytes = 0

    def write(self, data: bytes) -> None:
        """Takes output as it comes; an unfinished line waits for its end."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._write_lines(lines)
        if len(self._rest) > LINE_BYTES + self._longest_secret:
            cut = self._cut(self._rest)
            self._write_lines([self._rest[:cut]])
            self._rest = self._rest[cut:]

    def close(self) -> None:
        """Writes the unfinished line, too."""
        if self._rest:
            self._write_lines([self._rest])
            self._rest = b""
        if self._segment is not None:
            os.close(self._segment)
            self._segment = None

    def _cut(self, line: bytes) -> int:
        """Where an unfinished line may be cut: what may be the beginning of a secret stays behind, whole."""
        cut = len(line) - self._longest_secret
        for match in self._secrets.finditer(line):
            if match.start() < cut < match.end():
                return match.start()
        return cut

    def _write_lines(self, lines: list[bytes]) -> None:
        pieces = [
            line[start : start + LINE_BYTES] + b"\n"
            for line in (self._secrets.sub(MASK, line) for line in lines)
            for start in range(0, max(1, len(line)), LINE_BYTES)
        ]
        try:
            for start in range(0, len(pieces), 256):
                self._append(pieces[start : start + 256])
        except OSError:
            return

    def _append(self, pieces: list[bytes]) -> None:
        if self._segment is None or self._segment_bytes > SEGMENT_BYTES:
            self._next_segment()
        data = b"".join(pieces)
        self._segment_bytes += len(data)
        self._line += len(pieces)
        while data and self._segment is not None:
            data = data[os.write(self._segment, data) :]

    def _next_segment(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        segment = os.open(segment_name(self._line), flags, 0o600, dir_fd=self._directory)
        if self._segment is not None:
            os.close(self._segment)
        self._segment = segment
        self._segment_bytes = 0
        for first_line in segments(self._directory)[:-SEGMENTS_KEPT]:
            os.unlink(segment_name(first_line), dir_fd=self._directory)
