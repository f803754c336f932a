"""How fast the replay is, in jobs per second of one core, beside what it is compared to."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from scheduler.policies import POLICIES, PolicyConfig
from scheduler.replay.engine import replay
from scheduler.replay.workload import jobs_of
from scheduler.spec.scenario import load_scenario

ACCEPTED_S = 120.0
"""All policies over the Kalos trace, by the acceptance of the first version."""

pytestmark = [pytest.mark.perf, pytest.mark.shared_data]


@pytest.mark.parametrize("name", ["real12-kalos", "real12-helios"])
def test_jobs_per_second(data_dir: Path, name: str) -> None:
    scenario = load_scenario(data_dir / f"scenarios/{name}.yaml")
    jobs = jobs_of(scenario)
    print(f"\n{name}: {len(jobs)} jobs, every plan checked, without writing files")
    total_s = 0.0
    for policy in POLICIES:
        began_s = time.perf_counter()
        result = replay(scenario, jobs, PolicyConfig(name=policy))
        took_s = time.perf_counter() - began_s
        total_s += took_s
        deciding_s = sum(result.decisions.durations_s)
        virtual_s = max(row.end_s for row in result.allocations)
        print(
            f"  {policy:>8}: {len(jobs) / took_s:7.0f} jobs/s ({took_s:.2f} s, of which {deciding_s:.2f} s in "
            f"{len(result.decisions.durations_s)} decisions; {virtual_s / took_s:,.0f} times real time)"
        )
    print(f"  all policies: {total_s:.1f} s, compared to {ACCEPTED_S:.0f} s accepted for Kalos")
    if name == "real12-kalos":
        assert total_s < ACCEPTED_S
