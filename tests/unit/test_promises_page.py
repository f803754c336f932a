"""docs/promises.md names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_test_that_keeps_a_promise_is_there() -> None:
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    named = _NAMED.findall(page)
    assert len(named) > 30
    missing = [f"{path}::{name}" for path, name in named if not _is_there(ROOT / path, name)]
    assert missing == []


def test_every_promise_names_a_test() -> None:
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    rows = [
        line
        for line in page.splitlines()
        if line.startswith("|") and not line.startswith(("|---", "| promise"))
    ]
    assert rows
    assert [row for row in rows if not _NAMED.search(row)] == []


def _is_there(path: Path, name: str) -> bool:
    if not path.is_file():
        return False
    if not name:
        return True
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
        for node in ast.walk(tree)
    )
