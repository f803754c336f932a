"""Output from the worker's pipe to log reports: whole lines, their true numbers, bounded, secrets masked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import outputlog
from agents.logs import BURST_LINES, LAST_LINES, LineRate, last_lines, read_output
from agents.outputlog import OutputLog
from agents.state import LogPosition
from agents.text import LINE_CHARACTERS
from agents.workdir import ProcessFolder

SECRETS = [b"s3cr3t-value", b"s3cr3t"]


@pytest.fixture
def folder(tmp_path: Path) -> ProcessFolder:
    made = ProcessFolder(tmp_path / "p")
    made.make()
    return made


@pytest.fixture
def log(folder: ProcessFolder) -> Iterator[OutputLog]:
    directory = folder.open_log()
    assert directory is not None
    output = OutputLog(directory, SECRETS)
    yield output
    output.close()
    os.close(directory)


class Reader:
    """Reads a log to its end, as often as it is asked to."""

    def __init__(self, folder: ProcessFolder) -> None:
        self.folder = folder
        self.position = LogPosition()
        self.rate = LineRate(0.0)
        self.now_s = 0.0
        self.seen: dict[int, str] = {}

    def read(self, ended: bool = False) -> dict[int, str]:
        more = True
        while more:
            got = read_output(self.folder, self.position, self.rate, self.now_s, ended)
            for piece in got.pieces:
                for number, line in enumerate(piece.lines, piece.first_line):
                    assert number not in self.seen, "a line number was used twice"
                    self.seen[number] = line
            self.position, more = got.position, got.more
        return self.seen


def test_lines_come_when_they_are_whole_and_once(folder: ProcessFolder, log: OutputLog) -> None:
    reader = Reader(folder)
    assert reader.read() == {}
    log.write(b"one\ntw")
    assert reader.read() == {0: "one"}
    log.write(b"o\nthree")
    log.close()
    assert reader.read(ended=True) == {0: "one", 1: "two", 2: "three"}


def test_a_line_is_what_a_terminal_would_show_bounded_and_storable(
    folder: ProcessFolder, log: OutputLog
) -> None:
    log.write(b"10%\r50%\r100%\r\n" + b"bad \xff\x00 bytes\n" + b"x" * 5000 + b"\n\n")
    seen = Reader(folder).read()
    assert seen[0] == "100%"
    assert seen[1] == "bad �� bytes"
    assert len(seen[2]) == LINE_CHARACTERS
    assert seen[2].endswith("…[cut]")
    assert seen[3] == ""


@given(chunks=st.lists(st.binary(max_size=60), max_size=12), cuts=st.integers(1, 7))
@settings(deadline=None, max_examples=60)
def test_however_output_arrives_no_secret_shows_and_no_line_is_lost(
    chunks: list[bytes], cuts: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = ProcessFolder(tmp_path_factory.mktemp("log") / "p")
    folder.make()
    data = b"".join(chunk + SECRETS[0] + b"\n" for chunk in chunks)
    directory = folder.open_log()
    assert directory is not None
    log = OutputLog(directory, SECRETS)
    for start in range(0, len(data), cuts):
        log.write(data[start : start + cuts])
    log.close()
    os.close(directory)
    written = b"".join(file.read_bytes() for file in sorted((folder.path / "log").iterdir()))
    assert not any(secret in written for secret in SECRETS)
    assert written.count(b"[secret]") >= len(chunks)
    assert len(Reader(folder).read(ended=True)) == data.count(b"\n")


@pytest.mark.parametrize("lead", range(0, 60, 3))
def test_a_secret_is_masked_in_a_line_without_end_wherever_it_is_cut(
    lead: int, folder: ProcessFolder, log: OutputLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputlog, "LINE_BYTES", 40)
    for byte in b"." * lead + SECRETS[0] + b"." * 35 + SECRETS[0]:
        log.write(bytes([byte]))
    log.close()
    written = b"".join(file.read_bytes() for file in (folder.path / "log").iterdir()).replace(b"\n", b"")
    assert written == b"." * lead + b"[secret]" + b"." * 35 + b"[secret]"


def test_a_late_reader_is_told_how_many_lines_it_missed(
    folder: ProcessFolder, log: OutputLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputlog, "SEGMENT_BYTES", 1000)
    reader = Reader(folder)
    log.write(b"first\n")
    reader.read()
    for number in range(1, 1001):
        log.write(b"line %d\n" % number)
    log.close()
    seen = reader.read(ended=True)
    assert len(list((folder.path / "log").iterdir())) == outputlog.SEGMENTS_KEPT
    assert seen[1].startswith("[agent: ")
    missed = int(seen[1].split()[1])
    assert set(seen) == {0, 1, *range(1 + missed, 1001)}
    assert all(seen[number] == f"line {number}" for number in range(1 + missed, 1001))


def test_a_flood_is_thinned_with_a_mark_and_ends_with_its_last_lines(
    folder: ProcessFolder, log: OutputLog
) -> None:
    total = BURST_LINES + 1000
    log.write(b"".join(b"%d\n" % number for number in range(total)))
    seen = Reader(folder).read(ended=True)
    last = range(total - LAST_LINES, total)
    assert (
        seen[BURST_LINES]
        == f"[agent: {1000 - LAST_LINES} lines left out here: there were more than can be kept]"
    )
    assert [seen[number] for number in last] == [str(number) for number in last]
    assert set(seen) == {*range(BURST_LINES + 1), *last}
    assert last_lines(folder) == tuple(str(number) for number in last)


def test_the_rate_fills_again(folder: ProcessFolder, log: OutputLog) -> None:
    rate = LineRate(0.0)
    assert rate.take(BURST_LINES + 5, 0.0) == BURST_LINES
    assert rate.take(10, 0.0) == 0
    assert rate.take(1000, 1.0) == 200


def test_last_lines_reach_back_over_segments(
    folder: ProcessFolder, log: OutputLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputlog, "SEGMENT_BYTES", 20)
    for number in range(10):
        log.write(b"%d %s\n" % (number, b"x" * 12))
    assert [line.split()[0] for line in last_lines(folder)] == ["2", "3", "4", "5", "6", "7", "8", "9"]


def test_a_disk_that_takes_nothing_more_does_not_stop_the_worker(
    folder: ProcessFolder, log: OutputLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(outputlog.os, "write", full)
        log.write(b"lost\n")
    log.write(b"kept\n")
    log.close()
    assert "kept" in Reader(folder).read(ended=True).values()


def test_without_output_there_is_nothing_to_read(tmp_path: Path) -> None:
    folder = ProcessFolder(tmp_path / "never-made")
    assert Reader(folder).read() == {}
    assert last_lines(folder) == ()
