"""The YAML reader is safe, bounded, and knows its lines."""

from __future__ import annotations

import math

import pytest

from scheduler.spec.issues import SpecError
from scheduler.spec.yaml_text import MAX_BYTES, read_yaml


def test_scalars_are_those_of_yaml_1_2_and_nothing_is_guessed() -> None:
    text = "{a: no, b: 1:30, c: 2026-01-01, d: 1e9, e: 0x10, f: ~, g: true, h: '7', i: -.inf, j: .5, k: 007, l: [-1.5]}"
    value = read_yaml(text, "t").value
    assert value == {
        "a": "no",
        "b": "1:30",
        "c": "2026-01-01",
        "d": 1e9,
        "e": 16,
        "f": None,
        "g": True,
        "h": "7",
        "i": -math.inf,
        "j": 0.5,
        "k": 7,
        "l": [-1.5],
    }


def test_json_is_read_as_well() -> None:
    assert read_yaml('{"a": [1, 2.5, null, "x"]}', "t").value == {"a": [1, 2.5, None, "x"]}


def test_every_value_knows_its_line() -> None:
    lines = read_yaml("a:\n  b: 1\n  c:\n    - x\n    - y\n", "t").lines
    assert (lines["/a"], lines["/a/b"], lines["/a/c"], lines["/a/c/0"], lines["/a/c/1"]) == (1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "every key once"),
        ("a: &x [1]\nb: *x\n", 1, "anchor"),
        ("a: 1\nb: *x\n", 2, "alias"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "tag"),
        ("a: 1\n---\nb: 2\n", 2, "one document"),
        ("? [a, b]\n: 1\n", 1, "text as key"),
        ("a: [1, 2\nb: 3\n", 2, "valid YAML"),
        ("\n".join(" " * depth + "a:" for depth in range(40)), 33, "levels of nesting"),
    ],
)
def test_what_is_not_read_names_its_line(text: str, line: int, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_yaml(text, "t.yaml")
    (issue,) = caught.value.issues
    assert issue.line == line
    assert expected in issue.expected


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{a: " * 50_000, "a: \x01", b"\xff\xfe\xff", "x" * (MAX_BYTES + 1)]
)
def test_hostile_texts_are_refused_and_not_built(text: str | bytes) -> None:
    with pytest.raises(SpecError):
        read_yaml(text, "t")


def test_the_number_of_values_is_bounded() -> None:
    with pytest.raises(SpecError, match="at most 50000 values"):
        read_yaml("[" + "1," * 50_001 + "]", "t")
