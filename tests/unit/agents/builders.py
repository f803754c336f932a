"""Values of the agent's world, with everything filled in that a test does not care about."""

from __future__ import annotations

from typing import Any

from agents.protocol import BusyReport, LogReport, StageProcess, StepReport


def stage(key: str = "alloc-1/0", **changes: Any) -> StageProcess:
    values: dict[str, Any] = {
        "key": key,
        "job_id": "job-1",
        "allocation_id": key.split("/")[0],
        "generation": 1,
        "node_id": "node-a",
        "gpu_indices": [0],
        "rank": 0,
        "stage": 0,
        "argv": ["{python}", "-c", "pass"],
        "env": {},
    }
    return StageProcess.model_validate({**values, **changes})


def step(seq: int, number: int = 1, key: str = "a/0") -> StepReport:
    return StepReport(seq=seq, key=key, step=number, loss=1.0, step_time_s=1.0, tokens=1, at_s=1.0)


def lines(seq: int, *text: str, first_line: int = 0, key: str = "a/0") -> LogReport:
    return LogReport(seq=seq, key=key, first_line=first_line, lines=list(text) or ["x"], at_s=1.0)


def busy(seq: int, key: str = "a/0") -> BusyReport:
    return BusyReport(seq=seq, key=key, from_s=0.0, to_s=1.0, busy_fraction=0.5)
