"""`bace demo`: a server, three agents in three regions, one job that no region holds alone; then nothing is left."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from scheduler.spec.scenario import load_scenario
from service.cli.demo_report import report_page, result_of
from service.cli.documents import read_job_file
from service.cli.examples import example
from service.cli.exits import CommandError, Exit
from service.cli.follow import follow_job
from service.cli.job_tables import chain_page
from service.cli.local import AgentPlan, LocalServer, start_server
from service.cli.output import Format, error_console, heading, show
from service.cli.stack import Stack, interruptible, uninterrupted
from service.cli.watch import watch
from service.cli.world_import import import_world

SCENARIO = "scenarios/three-regions.yaml"
JOB = "jobs/demo.yaml"
SLOTS = 2
"""CPU slots of each region: fewer than the job has stages."""
PROBE_S = 2.0

SERVER_SETTINGS = {
    "BACE_HEARTBEAT_INTERVAL_S": "0.5",
    "BACE_PLAN_INTERVAL_S": "1",
    "BACE_TICK_S": "0.5",
    "BACE_BILL_INTERVAL_S": "2",
    "BACE_LEASE_S": "30",
    "BACE_MAX_STOP_GRACE_S": "30",
    "BACE_NODE_LOST_AFTER_S": "80",
    "BACE_REGION_COOLDOWN_S": "10",
}

Document = dict[str, Any]


def run_demo(port: int | None, steps: int | None, result: Path) -> None:
    """The whole demonstration; the result is written to `result`. Raises CommandError where it fails.

    `steps`: in the place of those of the example job.
    """
    home = Path(tempfile.mkdtemp(prefix="bacepipe-demo-"))
    stack = Stack(home)
    try:
        with interruptible():
            server = raise_world(stack, home, port)
            job = train(server, steps)
            result.write_text(json.dumps(result_of(job), indent=2) + "\n", encoding="utf-8")
            show(*report_page(job))
            show(
                "", f"Result: {result}", f"The dashboard was at {server.url} (`bace up --demo` keeps it up)."
            )
    except CommandError as error:
        error.hint = " ".join(part for part in (error.hint, f"Logs are kept in {home / 'logs'}.") if part)
        take_down(stack)
        raise
    except BaseException:
        take_down(stack)
        shutil.rmtree(home, ignore_errors=True)
        raise
    take_down(stack)
    shutil.rmtree(home, ignore_errors=True)


def raise_world(stack: Stack, home: Path, port: int | None) -> LocalServer:
    """Start the server and the agents of the example scenario, and tell the server its geography."""
    scenario = load_scenario(example(SCENARIO))
    say("Starting the server …")
    server = start_server(stack, home, port, SERVER_SETTINGS)
    with server.api() as api:
        import_world(api, scenario)
    show(Text.assemble(("Dashboard: ", "bold"), server.dashboard))
    regions = list(scenario.cluster.regions)
    say(f"Starting agents in {', '.join(regions)}, one after the other; each measures what a slot sustains …")
    server.start_agents(agent_plans(regions), {})
    server.wait_for_nodes()
    return server


def train(server: LocalServer, steps: int | None = None) -> Document:
    """Submit the example job, show the plan, and follow it to its end. Raises CommandError if it fails."""
    job_file = read_job_file(str(example(JOB)))
    document = job_file.document
    if steps is not None:
        document["training"]["steps"] = steps
    with server.api() as api:
        job = api.post("/v1/jobs", document)
        say(f"Submitted {job['name']}: {job['job_id']}")
        for glance in watch(api, job["job_id"], tick=server.stack.check):
            if glance.job["placement"] is not None:
                show(
                    heading("Plan"),
                    *chain_page(glance.job["placement"], glance.job["why"]),
                    heading("Training"),
                )
                break
        job = follow_job(api, job["job_id"], Format.TABLE, steps=True, tick=server.stack.check)
    if job["state"] != "succeeded":
        details = "; ".join(reason["detail"] for reason in job["reasons"])
        raise CommandError(
            f"The job ended as {job['state']}: {details or 'no reason was given'}", Exit.FAILED
        )
    return job


def agent_plans(regions: Sequence[str]) -> list[AgentPlan]:
    """One agent for each region, with CPU slots."""
    offer = ("--cpu-slots", str(SLOTS), "--probe-seconds", str(PROBE_S), "--stop-workers-on-exit")
    return [AgentPlan(f"{region}-1", region, offer) for region in regions]


def take_down(stack: Stack) -> None:
    """Stop everything, whatever the user presses meanwhile."""
    with uninterrupted():
        if stack.members:
            say("Stopping what was started …")
        stack.stop()


def say(text: str) -> None:
    """Progress, beside the output."""
    error_console().print(Text(text, style="dim"))
