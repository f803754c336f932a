"""`bace demo` trains over several regions, tells what it has cost, and leaves nothing running, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400), pytest.mark.xdist_group("demo")]

PATIENCE_S = 300.0
SLOTS_OF_A_REGION = 2


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the demonstration runs: temporary files and results go below it. Whatever is left there is killed."""
    yield tmp_path
    for process in processes_of(tmp_path):
        process.kill()


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "TMPDIR": str(folder),
        "BACE_HOME": str(folder / "home"),
        "NO_COLOR": "1",
    }
    for name in ("BACE_URL", "BACE_TOKEN"):
        environment.pop(name, None)
    return subprocess.Popen(
        [sys.executable, "-m", "service.cli.main", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def processes_of(folder: Path) -> list[psutil.Process]:
    """Everything that was started with this folder in its arguments or environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = [*process.cmdline(), *process.environ().values()]
            if process.status() != psutil.STATUS_ZOMBIE and any(str(folder) in word for word in words):
                found.append(process)
    return found


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What it printed, up to the line that holds `text`; the test fails if that never comes."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return "".join(lines)
    pytest.fail(f"{text!r} was not printed:\n{''.join(lines)}")


def test_the_demonstration_trains_over_regions_and_leaves_nothing(folder: Path) -> None:
    process = start(folder, "demo", "--steps", "8")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    result = json.loads((folder / "demo-result.json").read_text())
    chain = {part["region"]: part["stages"] for part in result["chain"]}
    assert len(chain) >= 2
    assert sum(chain.values()) > SLOTS_OF_A_REGION >= max(chain.values())
    assert result["steps"] == 8
    assert result["last_loss"] < 0.8 * result["first_loss"]
    assert result["jct_s"] > result["queueing_s"] >= 0
    assert result["predicted_iteration_s"] > 0
    assert result["measured_iteration_s"] > 0
    assert set(result["energy_kwh"]) == set(result["cost_usd"]) == set(chain)
    assert all(energy > 0 for energy in result["energy_kwh"].values())
    assert result["job_id"] in output
    for told in ("Why:", "step    8/8", "queueing delay", "predicted", "Dashboard: http://127.0.0.1:"):
        assert told in output
    assert processes_of(folder) == []
    assert sorted(entry.name for entry in folder.iterdir()) == ["demo-result.json"]


def test_an_interrupted_demonstration_leaves_nothing(folder: Path) -> None:
    process = start(folder, "demo")
    read_until(process, "step    2/")
    running = processes_of(folder)
    assert len(running) > 7, "the command, a server, three agents and three stages with their supervisors"
    process.send_signal(signal.SIGINT)
    asked_s = time.monotonic()
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - asked_s < 60
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []
