"""`bace demo`: a server, three agents in three regions, one job that no region holds alone; then nothing is left."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from scheduler.errors import InvalidValueError
from scheduler.spec.scenario import Scenario, load_scenario
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
OFFER = ("--probe-seconds", "2", "--stop-workers-on-exit")

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
    """The whole demonstration; the result is written to `result`. Raises CommandError where it fails, InvalidValueError
    where that file cannot be written.

    `steps`: in the place of those of the example job.
    """
    try:  # told now, and not once everything has been trained
        was_there = result.exists()
        result.open("a").close()
        if not was_there:
            result.unlink()
    except OSError as error:
        expected = f"a file that can be written ({error.strerror})"
        raise InvalidValueError("--result", str(result), expected) from None
    with passing_stack() as stack:
        server = raise_world(stack, stack.folder, port)
        tell(train(server, JOB, steps), result)
        show(f"The dashboard was at {server.url} (`bace up --demo` keeps it up).")


@contextlib.contextmanager
def passing_stack() -> Iterator[Stack]:
    """A stack in a folder of its own; both are gone after the block. Where a command failed its logs are kept."""
    home = Path(tempfile.mkdtemp(prefix="bacepipe-demo-"))
    stack = Stack(home)
    try:
        with interruptible():
            yield stack
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
    server = start_told_server(stack, home, port, scenario)
    start_agents(server, agent_plans(list(scenario.cluster.regions)))
    return server


def start_told_server(stack: Stack, home: Path, port: int | None, scenario: Scenario) -> LocalServer:
    """Start the server and tell it the geography of a scenario."""
    say("Starting the server …")
    server = start_server(stack, home, port, SERVER_SETTINGS)
    with server.api() as api:
        import_world(api, scenario)
    show(Text.assemble(("Dashboard: ", "bold"), server.dashboard))
    return server


def start_agents(server: LocalServer, plans: Sequence[AgentPlan]) -> None:
    """Start agents, and wait until all of them have joined."""
    regions = ", ".join(plan.region for plan in plans)
    say(f"Starting agents in {regions}, one after the other; each measures what a slot sustains …")
    server.start_agents(plans, {})
    server.wait_for_nodes()


def train(
    server: LocalServer,
    job: str = JOB,
    steps: int | None = None,
    placed: Callable[[Document], None] | None = None,
) -> Document:
    """Submit an example job, show the plan, and follow it to its end. Raises CommandError if it fails.

    `placed` is told the placement as soon as there is one.
    """
    job_file = read_job_file(str(example(job)))
    document = job_file.document
    if steps is not None:
        document["training"]["steps"] = steps
    with server.api() as api:
        submitted = api.post("/v1/jobs", document)
        say(f"Submitted {submitted['name']}: {submitted['job_id']}")
        for glance in watch(api, submitted["job_id"], tick=server.stack.check):
            if glance.job["placement"] is not None:
                if placed is not None:
                    placed(glance.job["placement"])
                show(
                    heading("Plan"),
                    *chain_page(glance.job["placement"], glance.job["why"]),
                    heading("Training"),
                )
                break
        ended = follow_job(api, submitted["job_id"], Format.TABLE, steps=True, tick=server.stack.check)
    if ended["state"] != "succeeded":
        details = "; ".join(reason["detail"] for reason in ended["reasons"])
        raise CommandError(
            f"The job ended as {ended['state']}: {details or 'no reason was given'}", Exit.FAILED
        )
    return ended


def tell(job: Document, result: Path) -> None:
    """The figures of a job that has ended, on the screen and in the file `result`."""
    result.write_text(json.dumps(result_of(job), indent=2) + "\n", encoding="utf-8")
    show(*report_page(job))
    show("", f"Result: {result}")


def agent_plans(regions: Sequence[str]) -> list[AgentPlan]:
    """One agent for each region, with CPU slots."""
    offer = ("--cpu-slots", str(SLOTS), *OFFER)
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
