"""One replay of the shipped scenario under every policy, for all tests that look at its files."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.policies import POLICIES, PolicyConfig
from scheduler.replay.run import run_policies
from scheduler.spec.scenario import load_scenario

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "deploy/examples/scenarios/three-regions.yaml"


@pytest.fixture(scope="session")
def example_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """OUT of a replay of the example under all policies."""
    out = tmp_path_factory.mktemp("replay") / "out"
    configs = [PolicyConfig(name=name) for name in POLICIES]
    run_policies(load_scenario(EXAMPLE), configs, out, lambda *_: None, processes=1)
    return out


@pytest.fixture(scope="session")
def checker() -> Callable[[Path, Path], list[str]]:
    """`check(scenario, folder)` of the checker, which is a program of its own and no package."""
    path = ROOT / "tests/replay_checker.py"
    spec = importlib.util.spec_from_file_location("replay_checker", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["replay_checker"] = module
    spec.loader.exec_module(module)
    check: Callable[[Path, Path], list[str]] = module.check
    return check


@pytest.fixture
def make_listed(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a scenario of one region and one listed job; the argument ends its `training`."""

    def write(training: str) -> Path:
        path = tmp_path / "listed.yaml"
        path.write_text(
            "start: 2026-01-01T00:00:00Z\n"
            "regions: [{name: r1, gpus: {A100-80G: 8}, price: {usd_per_kwh: 0.2}}]\n"
            f"jobs: [{{name: a, model: {{preset: llama-2-7b}}, training: {{{training}}}]\n"
        )
        return path

    return write
