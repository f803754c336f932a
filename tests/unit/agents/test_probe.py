"""The probe: measured by a process of its own, remembered with its age, and every failure told with a remedy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agents.errors import ProbeError
from agents.probe import MAX_AGE_S, Probe, ProbeTarget

CPU = ProbeTarget("cpu-slot", None)
GPU = ProbeTarget("h100", "GPU-7")
PRINTING = """
import json, os, sys
with open({count!r}, "a") as file:
    file.write("x")
flops = 1e9 * len(open({count!r}).read())
seen = [*sys.argv[1:], os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("BACE_TOKEN", "")]
print("some warning of a library")
print(json.dumps(dict(sustained_flops=flops, forward_s=0.1, backward_s=0.2, device="|".join(seen), more=1)))
"""


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    script = PRINTING.format(count=str(tmp_path / "count"))
    return Probe(tmp_path / "probe.json", (sys.executable, "-c", script))


def test_it_measures_once_and_remembers_until_it_is_old(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACE_TOKEN", "the agent's own")
    first = probe.sustained(CPU, 1.5, now_s=1000.0, busy=False)
    assert (first.sustained_flops, first.measured_at_s) == (1e9, 1000.0)
    assert first.device == "--seconds|1.5|--device|cpu||"
    assert probe.sustained(CPU, 1.5, now_s=999.0 + MAX_AGE_S, busy=False) == first
    assert probe.sustained(CPU, 1.5, now_s=1000.0 + MAX_AGE_S, busy=True) == first, (
        "busy: old is truer than new"
    )
    again = probe.sustained(CPU, 1.5, now_s=1000.0 + MAX_AGE_S, busy=False)
    assert (again.sustained_flops, again.measured_at_s) == (2e9, 1000.0 + MAX_AGE_S)


def test_devices_are_remembered_apart(probe: Probe) -> None:
    cpu = probe.sustained(CPU, 1, now_s=1.0, busy=False)
    gpu = probe.sustained(GPU, 1, now_s=2.0, busy=False)
    assert gpu.device == "--seconds|1|--device|cuda|GPU-7|"
    assert probe.sustained(CPU, 1, now_s=3.0, busy=False) == cpu
    assert probe.sustained(GPU, 1, now_s=3.0, busy=False) == gpu


def test_a_memory_that_cannot_be_read_is_measured_anew(probe: Probe, tmp_path: Path) -> None:
    for content in ("{", "[]", '{"measurements": [{"sustained_flops": -1}]}'):
        (tmp_path / "probe.json").write_text(content)
        assert probe.sustained(CPU, 1, now_s=5.0, busy=False).measured_at_s == 5.0


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("import no_such_torch", "ended with 1: ModuleNotFoundError: No module named 'no_such_torch'"),
        ("print('not json')", "cannot be read"),
        ("print('{\"sustained_flops\": 0}')", "cannot be read"),
        ("pass", "cannot be read"),
        ("print('[1]')", "cannot be read"),
    ],
)
def test_a_failure_says_what_to_do(script: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match=expected) as wrong:
        Probe(tmp_path / "probe.json", (sys.executable, "-c", script)).sustained(CPU, 1, 0.0, busy=False)
    assert "bacepipe[worker]" in str(wrong.value)
    assert "--sustained-flops" in str(wrong.value)
    assert not (tmp_path / "probe.json").exists()
