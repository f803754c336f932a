"""A scenario of two regions, written into a folder of a test's own, and jobs for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from scheduler import policies
from scheduler.plan import Plan
from scheduler.policies import PolicyConfig
from scheduler.replay.engine import replay
from scheduler.replay.records import ReplayResult
from scheduler.replay.workload import jobs_of
from scheduler.snapshot import Snapshot
from scheduler.spec.scenario import Scenario, load_scenario

TWO_REGIONS = """\
start: 2026-01-01T00:00:00Z
gpus:
  G: {tflops: 100, mfu: 0.5, memory: 80GB, power_w: 400, idle_w: 100}
regions:
  - {name: dear, gpus: {G: 8}, pue: 1.5, price: {usd_per_kwh: 0.3}, rent_usd_per_gpu_hour: 2}
  - {name: cheap, gpus: {G: 4}, pue: 1.2, price: {csv: prices.csv, column: z, unit: usd_per_mwh, known: KNOWN}}
links:
  - {src: dear, dst: cheap, gbps: 100, rtt_ms: 4, egress_usd_per_gb: 0.02}
  - {src: cheap, dst: dear, gbps: 100, rtt_ms: 4, egress_usd_per_gb: 0.05}
jobs:
"""
HOURLY_USD_PER_MWH = [100.0, -50.0, 200.0] * 16
"""From the day before the start."""


def write_scenario(
    folder: Path, jobs: str, prices: list[float] | None = None, known: str = "day-ahead"
) -> Path:
    """Writes a scenario with the given jobs (YAML lines) and price column (USD/MWh, from the day before the start)."""
    values = HOURLY_USD_PER_MWH * 2 if prices is None else prices
    hours = [
        f"{'2025-12-31' if index < 24 else f'2026-01-{index // 24:02d}'}T{index % 24:02d}:00Z,{value}"
        for index, value in enumerate(values)
    ]
    (folder / "prices.csv").write_text("\n".join(["timestamp_utc,z", *hours]))
    path = folder / "scenario.yaml"
    path.write_text(TWO_REGIONS.replace("KNOWN", known) + jobs)
    return path


def scenario_with(
    folder: Path, jobs: str, prices: list[float] | None = None, known: str = "day-ahead"
) -> Scenario:
    """As `write_scenario`, and reads it."""
    return load_scenario(write_scenario(folder, jobs, prices, known))


def run(scenario: Scenario, policy: str = "bace") -> ReplayResult:
    """Replays a scenario under a policy."""
    return replay(scenario, jobs_of(scenario), PolicyConfig(name=policy))


def job(
    name: str,
    submit: str = "0s",
    steps: int = 100,
    stages: object = "auto",
    preset: str = "llama-2-7b",
    **more: object,
) -> str:
    """A line of the jobs section: a model on single GPUs."""
    extra = "".join(f", {key}: {value}" for key, value in more.items())
    return (
        f"  - {{name: {name}, submit: {submit}, model: {{preset: {preset}, seq_len: 2048}}, "
        f"training: {{steps: {steps}, micro_batches: 16}}, parallelism: {{stages: {stages}}}{extra}}}\n"
    )


@dataclass(frozen=True)
class Answering:
    """A policy that answers each snapshot with what a function says."""

    answer: Callable[[Snapshot], Plan]
    name: str = "answering"
    meaning: str = ""
    replans: bool = False

    def decide(self, snapshot: Snapshot, **_: object) -> Plan:
        return self.answer(snapshot)


def answering(patch: pytest.MonkeyPatch, name: str, answer: Callable[[Snapshot], Plan]) -> None:
    """Puts a function in the place of a policy for as long as the patch lasts; it is shown the whole world."""
    patch.setattr(policies, "POLICIES", {**policies.POLICIES, name: Answering(answer, name)})


def watched(patch: pytest.MonkeyPatch, *names: str) -> list[Snapshot]:
    """Lets these policies decide by themselves, on snapshots of the whole world that are kept for the test."""
    seen: list[Snapshot] = []
    for name in names:
        policy = policies.POLICIES[name]

        def answer(snapshot: Snapshot, policy: object = policy) -> Plan:
            seen.append(snapshot)
            return policy.decide(snapshot, strict=False, seed=0)  # type: ignore[attr-defined, no-any-return]

        answering(patch, name, answer)
    return seen
