"""The list of pure modules in pyproject.toml is whole: a new module of the core cannot be forgotten in it."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EDGES = {"spec", "replay", "bench"}


def test_every_module_of_the_core_is_held_to_its_purity() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    pure = next(each for each in contracts if each["name"] == "The core of scheduler is pure")

    modules = {path.stem for path in (ROOT / "scheduler").glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in (ROOT / "scheduler").glob("*/__init__.py")} - EDGES

    assert set(pure["source_modules"]) == {f"scheduler.{name}" for name in modules | packages}
