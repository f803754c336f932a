"""`bace doctor`: what is wrong, and what to do. Exit code 1 if something is."""

from __future__ import annotations

import email.utils
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import httpx
import typer
from rich.console import RenderableType

from scheduler.units import format_duration
from service.cli.api import Api
from service.cli.exits import CommandError, Exit
from service.cli.output import Format, Output, emit, table
from service.cli.states import state_text
from service.cli.variables import unread

Document = dict[str, Any]

MAX_CLOCK_OFFSET_S = 5.0
CLOCK_RESOLUTION_S = 2.0
"""What whole seconds in a header and the time of a request leave unknown."""
TOKEN_ENDS_SOON_S = 7 * 86_400.0
AGENT_PATIENCE_S = 300.0
OK, WRONG, WARNING = "ok", "wrong", "warning"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: `state` is ok, warning or wrong; `advice` says what to do."""

    name: str
    state: str
    detail: str
    advice: str = ""


def doctor(
    node: Annotated[
        bool,
        typer.Option(
            "--node/--no-node", help="Also check this machine as a GPU node: torch, devices, ports."
        ),
    ] = True,
    cpu_slots: Annotated[
        int | None,
        typer.Option("--cpu-slots", min=1, help="Check it as a node without GPUs, with so many slots."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Check the server, the token, clocks, nodes, prices, and this machine; say what is wrong and what to do."""
    with Api(timeout_s=10.0) as api:
        checks = [*examine_environment(), *examine_server(api)]
        if node:
            checks.extend(examine_node(api, cpu_slots))
    wrong = [check for check in checks if check.state == WRONG]
    emit({"ok": not wrong, "checks": [asdict(check) for check in checks]}, output, checks_page)
    if wrong:
        raise typer.Exit(int(Exit.FAILED))


def register(app: typer.Typer, panel: str) -> None:
    """Add the command to `bace`."""
    app.command(rich_help_panel=panel)(doctor)


def examine_environment() -> Iterator[Check]:
    """Whether every BACE_* variable is one that something reads."""
    for name, nearest in unread(os.environ).items():
        advice = f"Did you mean {nearest}?" if nearest else "Unset it."
        yield Check("environment", WARNING, f"{name} is set, and nothing reads it", advice)


def examine_server(api: Api) -> Iterator[Check]:
    """From here: is it there and ready, does it take the token, and is the world it knows complete?"""
    try:
        asked_s = time.time()
        health = httpx.get(f"{api.url}/healthz", timeout=10.0, trust_env=False, verify=api.verify)
    except httpx.TransportError as error:
        yield Check(
            "server",
            WRONG,
            f"{api.url} does not answer: {error}",
            "Start it (`bace up`, `bace server`), or correct BACE_URL.",
        )
        return
    milliseconds = 1000 * (time.time() - asked_s)
    good = health.status_code == 200
    yield Check(
        "server",
        OK if good else WRONG,
        f"{api.url} answers {health.status_code} in {milliseconds:.0f} ms",
        "" if good else "Is BACE_URL the address of a bacepipe server? Look at its log.",
    )
    yield from _clock(health.headers.get("Date"), asked_s)
    yield from _readiness(api)
    try:
        who = api.get("/v1/whoami")
        nodes, regions, links = api.pages("/v1/nodes"), api.pages("/v1/regions"), api.pages("/v1/links")
    except CommandError as error:
        yield Check("token", WRONG, error.message, error.hint)
        return
    yield _token(who)
    yield from examine_world(nodes, regions, links)


def examine_world(nodes: list[Document], regions: list[Document], links: list[Document]) -> Iterator[Check]:
    """What the server knows of its agents, and whether jobs could run and be priced."""
    if not nodes:
        yield Check(
            "nodes",
            WRONG,
            "no node has joined",
            "On a GPU node: `bace agent --region NAME` with a token of role agent.",
        )
    for node in nodes:
        yield _node(node)
    here = importlib.metadata.version("bacepipe")
    others = sorted({node["agent_version"] for node in nodes} - {here})
    if nodes:
        yield Check(
            "versions",
            WARNING if others else OK,
            f"agents run {', '.join(others)}, this is {here}" if others else f"everything is {here}",
            "Bring agents and server to one version." if others else "",
        )
    with_nodes = [region["region"] for region in regions if region["nodes"]]
    unpriced = [r["region"] for r in regions if r["nodes"] and r["electricity_usd_per_kwh"] is None]
    if unpriced:
        yield Check(
            "prices",
            WARNING,
            f"no price of electricity is known now for {', '.join(unpriced)}",
            "`bace prices set electricity REGION VALUE`, or `bace prices import`.",
        )
    elif with_nodes:
        yield Check("prices", OK, f"known for all of {', '.join(with_nodes)}")
    joined = {end for link in links if link["capacity_bps"] > 0 for end in (link["src"], link["dst"])}
    alone = [region for region in with_nodes if region not in joined]
    if len(with_nodes) > 1:
        yield Check(
            "links",
            WARNING if alone else OK,
            f"no link leads to {', '.join(alone)}" if alone else f"{len(links)} between the regions",
            "Tell the server its links: PUT /v1/links/SRC/DST." if alone else "",
        )
    yield from _measured(links)


def _measured(links: list[Document]) -> Iterator[Check]:
    """Whether agents reach each other where they are to measure a link: the workers of jobs would not, either."""
    tested = [link for link in links if link["last_test"] is not None]
    failed = [link for link in tested if link["last_test"]["outcome"] in ("failed", "timed-out")]
    if failed:
        first = failed[0]
        yield Check(
            "measured links",
            WARNING,
            f"{len(failed)} of {len(tested)} could not be measured last; {first['src']} → {first['dst']}: "
            f"{first['last_test']['detail']}",
            "Let the nodes reach each other on their --address and --ports, or `bace link FROM TO --measure off`.",
        )
    elif tested:
        yield Check("measured links", OK, f"{len(tested)} were measured")


def examine_node(api: Api, cpu_slots: int | None) -> Iterator[Check]:
    """This machine as a node: the agent's own doctor, in a process of its own, where the agent is installed."""
    if importlib.util.find_spec("agents") is None:
        return
    arguments = ["--url", api.url, "--region", "this-machine"]
    if cpu_slots is None and shutil.which("nvidia-smi") is None:
        cpu_slots = os.cpu_count() or 1
    arguments += ["--cpu-slots", str(cpu_slots)] if cpu_slots is not None else []
    environment = {**os.environ, "BACE_TOKEN": api.token or "none"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "agents", *arguments, "doctor", "--json"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=AGENT_PATIENCE_S,
            check=False,
        )
        findings = json.loads(done.stdout)["findings"]
    except subprocess.TimeoutExpired:
        yield Check(
            "this machine", WRONG, f"the agent's checks took over {format_duration(AGENT_PATIENCE_S)}"
        )
        return
    except (ValueError, KeyError):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        yield Check(
            "this machine",
            WRONG,
            "".join(last) or "the agent's checks said nothing",
            "Try `bace agent doctor`.",
        )
        return
    for finding in findings:
        if finding["name"] not in {"server", "clock", "token"}:  # those were checked above
            yield Check(finding["name"], OK if finding["ok"] else WRONG, finding["detail"], finding["fix"])


def checks_page(document: Document) -> Iterator[RenderableType]:
    """The checks, and below them what to do."""
    checks = document["checks"]
    yield table(
        ["CHECK", "STATE", "DETAIL"], [[c["name"], state_text(c["state"]), c["detail"]] for c in checks]
    )
    advice = [check for check in checks if check["advice"]]
    if advice:
        yield ""
        yield table(["WHAT TO DO", ""], [[check["name"], check["advice"]] for check in advice])
    yield "" if document["ok"] else "\nSomething is wrong."


def _clock(date: str | None, asked_s: float) -> Iterator[Check]:
    if date is None:
        return
    # The header has whole seconds: half of one is its middle.
    offset_s = asked_s - (email.utils.parsedate_to_datetime(date).timestamp() + 0.5)
    good = abs(offset_s) <= MAX_CLOCK_OFFSET_S
    side = "ahead of" if offset_s > 0 else "behind"
    yield Check(
        "clock",
        OK if good else WRONG,
        f"this machine is {abs(offset_s):.0f} s {side} the server"
        if abs(offset_s) >= CLOCK_RESOLUTION_S
        else f"this machine and the server agree within {CLOCK_RESOLUTION_S:.0f} s",
        "" if good else "Let both follow a time server (chrony, systemd-timesyncd).",
    )


def _readiness(api: Api) -> Iterator[Check]:
    ready = httpx.get(f"{api.url}/readyz", timeout=10.0, trust_env=False, verify=api.verify)
    good = ready.status_code == 200
    yield Check(
        "ready",
        OK if good else WRONG,
        "database, migrations and a leader are there" if good else ready.text[:300],
        "" if good else "`bace migrate` brings the database up to date; the server's log tells the rest.",
    )


def _token(who: Document) -> Check:
    detail = f"the server takes it: {who['role']} in {who['project']}, of account {who['account']}"
    expires_at_s = who["expires_at_s"]
    if expires_at_s is None:
        return Check("token", OK, detail)
    left_s = expires_at_s - time.time()
    detail += f"; it ends in {format_duration(max(round(left_s), 0))}"
    if left_s > TOKEN_ENDS_SOON_S:
        return Check("token", OK, detail)
    return Check(
        "token", WARNING, detail, "`bace token rotate` gives it a new secret and its whole life again."
    )


def _node(node: Document) -> Check:
    name = f"node {node['node_id']}"
    heard = f"heard {format_duration(max(round(node['heartbeat_age_s']), 0))} ago"
    offset_s = node["clock_offset_s"]
    if node["state"] == "lost":
        return Check(
            name,
            WRONG,
            f"lost, {heard}",
            "Is its agent running, and can it reach the server? `bace agent doctor` there.",
        )
    if abs(offset_s) > MAX_CLOCK_OFFSET_S:
        return Check(name, WARNING, f"its clock is off by {offset_s:+.1f} s", "Let it follow a time server.")
    if node["state"] == "cordoned":
        return Check(
            name,
            WARNING,
            f"cordoned, {heard}",
            f"`bace uncordon {node['node_id']}` gives it back to planning.",
        )
    return Check(name, OK, f"{node['state']}, {heard}, clock off by {offset_s:+.3f} s")
