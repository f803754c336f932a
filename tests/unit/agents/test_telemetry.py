"""The report channel: each line once, from where it was read before; nothing a worker writes can stop it."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import telemetry as telemetry_module
from agents.protocol import BusyReport, CheckpointReport, StepReport
from agents.telemetry import Telemetry, read_reports
from agents.workdir import ProcessFolder

STEP = {"kind": "step", "step": 1, "loss": 2.5, "step_time_s": 0.1, "tokens": 64, "at_s": 5.0}


@pytest.fixture
def folder(tmp_path: Path) -> ProcessFolder:
    made = ProcessFolder(tmp_path / "p")
    made.make()
    return made


def read(folder: ProcessFolder, offset: int = 0, ended: bool = False) -> Telemetry:
    return read_reports(folder, "a/0", offset, next_seq=10, now_s=99.0, ended=ended)


def test_every_kind_of_line(folder: ProcessFolder) -> None:
    told = [
        {"kind": "ready"},
        STEP,
        {"kind": "checkpoint", "step": 1, "uri": "file:///c"},
        {"kind": "checkpoint-damaged", "step": 1, "detail": "head.safetensors: …"},
        {"kind": "busy", "from_s": 1, "to_s": 2, "busy_fraction": 0.25},
        {"kind": "end", "cause": "out-of-memory", "detail": "\ud800\0" + "x" * 5000},
    ]
    folder.report_file.write_text("".join(json.dumps(line) + "\n" for line in told))
    seen = read(folder)
    assert seen.ready
    assert seen.reports == [
        StepReport(seq=10, key="a/0", step=1, loss=2.5, step_time_s=0.1, tokens=64, at_s=5.0),
        CheckpointReport(seq=11, key="a/0", step=1, uri="file:///c", at_s=99.0),
        BusyReport(seq=12, key="a/0", from_s=1, to_s=2, busy_fraction=0.25),
    ]
    assert seen.cause == "out-of-memory"
    assert seen.detail is not None
    assert seen.detail.startswith("?�xxx"), "half of a surrogate pair, and a NUL, are no text"
    assert seen.unreadable_lines == 0
    assert seen.offset == folder.report_file.stat().st_size
    assert read(folder, seen.offset) == Telemetry(seen.offset)


def test_how_late_weights_were_is_told_where_a_worker_knows(folder: ProcessFolder) -> None:
    late = {"drift": 3, "drift_bound": 4, "rolled_back": 2}
    folder.report_file.write_text(json.dumps({**STEP, **late}) + "\n" + json.dumps(STEP) + "\n")

    told = [report.model_dump(include=set(late)) for report in read(folder).reports]

    assert told == [late, dict.fromkeys(late)]


def test_a_detail_is_bounded_and_storable(folder: ProcessFolder) -> None:
    folder.report_file.write_text(
        json.dumps({"kind": "end", "cause": "c" * 99, "detail": "\0" * 5000}) + "\n"
    )
    seen = read(folder)
    assert seen.cause is not None
    assert seen.detail is not None
    assert (len(seen.cause), len(seen.detail)) == (64, 4096)
    assert "\0" not in seen.detail


def test_a_step_without_ready_is_ready_and_its_loss_may_be_nan(folder: ProcessFolder) -> None:
    folder.report_file.write_text('{"kind": "step", "step": 3, "loss": NaN, "step_time_s": 1}\n')
    seen = read(folder)
    assert seen.ready
    (report,) = seen.reports
    assert isinstance(report, StepReport)
    assert math.isnan(report.loss)
    assert report.at_s == 99.0


def test_half_a_line_waits_for_its_end_and_is_taken_when_the_process_has_ended(folder: ProcessFolder) -> None:
    line = json.dumps(STEP)
    folder.report_file.write_text(line[:20])
    assert read(folder) == Telemetry(0)
    folder.report_file.write_text(line)
    assert read(folder).reports == []
    assert len(read(folder, ended=True).reports) == 1


def test_a_line_without_end_cannot_hold_up_the_rest(
    folder: ProcessFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry_module, "READ_BYTES", 128)
    folder.report_file.write_text("x" * 300 + "\n" + json.dumps(STEP) + "\n")
    offset, reports, unreadable = 0, 0, 0
    for _ in range(6):
        seen = read(folder, offset)
        offset, reports = seen.offset, reports + len(seen.reports)
        unreadable += seen.unreadable_lines
    assert (offset, reports) == (folder.report_file.stat().st_size, 1)
    assert unreadable == 3


@pytest.mark.parametrize("kind", ["symlink", "fifo", "folder", "missing", "link-to-work"])
def test_only_a_plain_file_is_read(kind: str, folder: ProcessFolder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(json.dumps(STEP) + "\n")
    match kind:
        case "symlink":
            folder.report_file.symlink_to(tmp_path / "secret")
        case "fifo":
            os.mkfifo(folder.report_file)
        case "folder":
            folder.report_file.mkdir()
        case "link-to-work":
            (tmp_path / "elsewhere").mkdir()
            (tmp_path / "elsewhere" / "report.jsonl").write_text(json.dumps(STEP) + "\n")
            folder.tmp.rmdir()
            folder.work.rmdir()
            folder.work.symlink_to(tmp_path / "elsewhere")
    assert read(folder, ended=True) == Telemetry(0)


@given(
    junk=st.lists(
        st.one_of(st.binary(max_size=80), st.just(json.dumps(STEP).encode()), st.just(b"[" * 5000)),
        max_size=10,
    )
)
@settings(deadline=None, max_examples=50)
def test_no_line_a_worker_writes_can_stop_the_reading(
    junk: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = ProcessFolder(tmp_path_factory.mktemp("t") / "p")
    folder.make()
    folder.report_file.write_bytes(b"".join(line.replace(b"\n", b" ") + b"\n" for line in junk))
    seen = read(folder)
    assert seen.offset == folder.report_file.stat().st_size
    assert len(seen.reports) >= junk.count(json.dumps(STEP).encode())
    assert [report.seq for report in seen.reports] == list(range(10, 10 + len(seen.reports)))
