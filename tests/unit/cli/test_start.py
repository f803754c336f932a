"""What a command needs, and no more: base installations run `bace agent` and `bace jobs`."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.cli import processes
from service.cli.exits import CommandError
from service.cli.main import LATE_COMMANDS

BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])

sys.meta_path.insert(0, Blocker())
from service.cli.main import main
sys.argv = ["bace", *sys.argv[1:]]
main()
"""
EXTRAS = {
    "alembic", "fastapi", "jinja2", "networkx", "numba", "numpy", "ortools", "plotly", "prometheus_client",
    "psycopg", "pynvml", "redis", "sqlalchemy", "starlette", "torch", "ulid", "uvicorn", "sse_starlette",
}  # fmt: skip
"""What no base installation has."""


def run_without_extras(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "bace.py"
    script.write_text(BLOCKER.format(blocked=EXTRAS))
    environment = {**os.environ, "BACE_URL": "http://127.0.0.1:9", "PYTHONPATH": str(Path.cwd())}
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("arguments", "exit_code", "told"),
    [
        (["--help"], 0, "submit"),
        (["jobs"], 5, "No server answers"),
        (["agent", "--help"], 0, "--cpu-slots"),
        (["agent", "--help"], 0, "Usage: bace agent "),
        (["replay", "x.yaml"], 1, "bacepipe[planner]"),
        (["demo"], 1, "bacepipe[server]"),
        (["server"], 1, "bacepipe[server]"),
    ],
)
def test_a_base_installation_runs_what_it_can_and_names_what_it_lacks(
    tmp_path: Path, arguments: list[str], exit_code: int, told: str
) -> None:
    done = run_without_extras(tmp_path, *arguments)
    assert told in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == exit_code


def test_late_commands_are_there() -> None:
    for name, (module, _) in LATE_COMMANDS.items():
        assert callable(getattr(importlib.import_module(module), name.replace("-", "_")))


def test_up_refuses_slots_for_the_demonstration() -> None:
    with pytest.raises(CommandError, match="--cpu-slots"):
        processes.up(with_demo=True, cpu_slots=2, port=None)
