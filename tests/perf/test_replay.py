"""How fast the replay is, in jobs per second of one core, beside what it is compared to."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from scheduler.policies import POLICIES, PolicyConfig
from scheduler.policies.queueing import QueuePolicy
from scheduler.replay.engine import replay
from scheduler.replay.workload import jobs_of
from scheduler.spec.scenario import load_scenario
from tests.perf.philly import philly

ACCEPTED_S = 120.0
"""All queueing policies over the Kalos trace, by the acceptance of the first version."""
PHILLY_S = {"fifo": 30.0, "lcf": 30.0, "bace": 60.0}
"""The whole Philly trace, of CPU time: other work on the machine does not count."""
PHILLY_GIB = 1.5

pytestmark = [pytest.mark.perf, pytest.mark.shared_data]


@pytest.mark.parametrize("name", ["real12-kalos", "real12-helios"])
def test_jobs_per_second(data_dir: Path, name: str) -> None:
    scenario = load_scenario(data_dir / f"scenarios/{name}.yaml")
    jobs = jobs_of(scenario)
    print(f"\n{name}: {len(jobs)} jobs, every plan checked, without writing files")
    total_s = 0.0
    for policy in (each for each, kind in POLICIES.items() if isinstance(kind, QueuePolicy)):
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


@pytest.mark.parametrize("policy", PHILLY_S)
def test_the_whole_philly_trace(data_dir: Path, policy: str) -> None:
    scenario, jobs = philly(data_dir)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    result = replay(scenario, jobs, PolicyConfig(name=policy))
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 2**30
    durations_s = result.decisions.durations_s
    jct_h = sum(row.jct_s or 0 for row in result.jobs) / len(jobs) / 3600
    print(
        f"\nPhilly, {len(jobs)} jobs in {len(scenario.cluster.regions)} virtual clusters, {policy}: {cpu_s:.1f} s of "
        f"CPU time ({len(jobs) / cpu_s:,.0f} jobs/s), {took_s:.1f} s in all, {sum(durations_s):.1f} s in "
        f"{len(durations_s)} decisions; {gib:.2f} GiB; mean JCT {jct_h:.1f} h"
    )
    assert all(row.state == "succeeded" for row in result.jobs)
    assert sum(row.steps for row in result.jobs) == sum(job.actual_steps for job in jobs)
    assert cpu_s <= PHILLY_S[policy]
    assert gib <= PHILLY_GIB
