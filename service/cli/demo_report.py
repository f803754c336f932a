"""What `bace demo` tells at its end: on the screen, and as demo-result.json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from scheduler.units import format_duration
from service.cli.job_tables import chain_text, iteration_text, seconds, spent_table
from service.cli.output import facts, heading

Document = dict[str, Any]


def result_of(job: Document) -> Document:
    """The figures of a job that has ended, as demo-result.json holds them.

    `energy_kwh` and `cost_usd` (electricity, egress and rent together) are by region; times are seconds.
    """
    stages: dict[str, int] = {}
    for part in job["chain"]:
        stages[part["region"]] = stages.get(part["region"], 0) + part["stages"]
    return {
        "job_id": job["job_id"],
        "chain": [{"region": region, "stages": count} for region, count in stages.items()],
        "first_loss": job["first_loss"],
        "last_loss": job["last_loss"],
        "steps": job["reported_steps"],
        "jct_s": job["jct_s"],
        "queueing_s": job["queueing_s"],
        "predicted_iteration_s": job["predicted_iteration_s"],
        "measured_iteration_s": job["measured_iteration_s"],
        "energy_kwh": job["energy_kwh"]["by_region"],
        "cost_usd": {region: spent["total"] for region, spent in job["cost_usd"]["by_region"].items()},
    }


def report_page(job: Document) -> Iterator[RenderableType]:
    """The same for people."""
    first, last = job["first_loss"], job["last_loss"]
    yield heading("Result")
    yield facts(
        [
            ("chain", chain_text(job["chain"])),
            ("steps", job["reported_steps"]),
            ("loss", f"{first:.4f} → {last:.4f} ({last / first - 1:+.0%})" if first and last else None),
            ("completion time (JCT)", seconds(job["jct_s"])),
            ("queueing delay", seconds(job["queueing_s"])),
            ("iteration", iteration_text(job["predicted_iteration_s"], job["measured_iteration_s"])),
            ("trained for", format_duration(job["jct_s"] - job["queueing_s"])),
        ]
    )
    yield heading("Energy and cost")
    yield spent_table(job["energy_kwh"], job["cost_usd"])
