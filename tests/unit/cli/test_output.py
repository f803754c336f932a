"""What commands print is true for people and for programs, and harmless to the terminal."""

from __future__ import annotations

import json

import pytest
import yaml
from rich.text import Text

from service.cli.output import Format, emit, emit_line, printable, show, table

DOCUMENT = {"items": [{"name": "größer", "loss": 0.1 + 0.2, "none": None}], "next": None}


@pytest.mark.parametrize(("output", "read"), [(Format.JSON, json.loads), (Format.YAML, yaml.safe_load)])
def test_documents_survive_printing_unchanged(
    capsys: pytest.CaptureFixture[str], output: Format, read: object
) -> None:
    emit(DOCUMENT, output, lambda document: [])
    assert callable(read)
    assert read(capsys.readouterr().out) == DOCUMENT


def test_a_stream_in_json_is_one_document_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for step in range(3):
        emit_line({"step": step, "text": "a\nb"}, Format.JSON, "unused")
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1, 2]


def test_text_from_outside_is_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show(table(["NAME"], [["[red]job[/red]"]]), "[bold]x[/bold]")
    out = capsys.readouterr().out
    assert "[red]job[/red]" in out
    assert "[bold]x[/bold]" in out


def test_control_characters_cannot_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show(table(["NAME"], [["evil\x1b[2Jname\x9b31m"]]))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x9b" not in out
    assert "evil\N{REPLACEMENT CHARACTER}[2Jname" in out
    assert printable("tab\tand\nline") == "tab\tand\nline"


def test_no_colours_where_output_is_not_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show(table(["STATE"], [[Text("failed", style="bold red")]]))
    assert "\x1b[" not in capsys.readouterr().out


def test_long_cells_stay_whole_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    wide = "x" * 200
    show(table(["A", "B"], [[wide, "end"]]))
    assert f"{wide}  end" in capsys.readouterr().out


def test_numbers_stand_to_the_right_and_unknown_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    show(table(["NAME", ">GPUS"], [["a", 1000], ["b", None]]))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[1].endswith("1000")
    assert lines[2].endswith("–")
    assert len(lines[1]) == len(lines[2])
