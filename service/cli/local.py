"""A bacepipe on this machine: the server with its settings, its first token, and agents that join it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from service.cli.api import Api
from service.cli.exits import CommandError, Exit
from service.cli.home import TOKEN_FILE
from service.cli.stack import Stack, free_port

DEFAULT_PORT = 8642
SERVER_PATIENCE_S = 90.0
JOIN_PATIENCE_S = 240.0
JOIN_TOKEN_S = 900.0
POLL_S = 0.2
PORTS_OF_AN_AGENT = 100
FIRST_PORT = 29500


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """An agent to start: its node's name, its region, and what it offers (options of `bace agent`)."""

    node: str
    region: str
    offer: Sequence[str]
    address: str = "127.0.0.1"
    """Where the workers of other agents reach its own."""
    within: Sequence[str] = ()
    """Words before its command: see `Stack.start`."""


@dataclass(slots=True)
class LocalServer:
    """A running server of ours, and the way to it."""

    stack: Stack
    url: str
    token: str
    home: Path
    agents: list[AgentPlan] = field(default_factory=list)

    @property
    def dashboard(self) -> str:
        """The dashboard's address; the fragment with the token never leaves the browser."""
        return f"{self.url}/#token={self.token}"

    def api(self) -> Api:
        """A connection as the administrator."""
        return Api(self.url, self.token)

    def start_agents(self, plans: Sequence[AgentPlan], environment: Mapping[str, str]) -> None:
        """Start agents, each with a token to join with, one after the other; `wait_for_nodes` waits for the last.

        An agent measures what a slot sustains when it joins: at once they would measure each other's load, and
        every prediction would be too slow.
        """
        for index, plan in enumerate(plans, start=len(self.agents)):
            if self.agents:
                self.wait_for_nodes()
            first = FIRST_PORT + index * PORTS_OF_AN_AGENT
            arguments = [
                "agents",
                *("--url", self.url),
                *("--node", plan.node),
                *("--region", plan.region),
                *("--address", plan.address),
                *("--ports", f"{first}-{first + PORTS_OF_AN_AGENT - 1}"),
                *("--work-dir", str(self.home / "agents" / plan.node)),
                *plan.offer,
            ]
            with self.api() as api:
                body = {"name": "local agent", "region": plan.region, "expires_in_s": JOIN_TOKEN_S}
                token = api.post("/v1/join-tokens", body)["token"]
            settings = {**environment, "BACE_TOKEN": token}
            self.stack.start(f"agent-{plan.node}", arguments, settings, plan.within)
            self.agents.append(plan)

    def wait_for_nodes(self) -> list[dict[str, object]]:
        """Until every agent has joined and its node is ready; their documents."""
        wanted = {plan.node for plan in self.agents}
        deadline = time.monotonic() + JOIN_PATIENCE_S
        with self.api() as api:
            while True:
                self.stack.check()
                nodes = [node for node in api.pages("/v1/nodes") if node["node_id"] in wanted]
                if {node["node_id"] for node in nodes if node["state"] == "ready"} == wanted:
                    return nodes
                if time.monotonic() > deadline:
                    missing = wanted - {node["node_id"] for node in nodes}
                    raise CommandError(
                        f"After {JOIN_PATIENCE_S:.0f} s these have not joined: {', '.join(sorted(missing))}.",
                        Exit.FAILED,
                        hint=f"Their logs: {self.home / 'logs'}",
                    )
                time.sleep(POLL_S)


def start_server(stack: Stack, home: Path, port: int | None, settings: Mapping[str, str]) -> LocalServer:
    """Start a server whose data is in `home`; returns when it answers. `port` None: 8642, or a free one."""
    free = free_port(port or DEFAULT_PORT)
    if port not in (None, free):
        raise CommandError(f"--port: {port} is in use on 127.0.0.1: choose another", Exit.USAGE)
    url = f"http://127.0.0.1:{free}"
    environment = {
        "BACE_HOME": str(home),
        "BACE_HOST": "127.0.0.1",
        "BACE_PORT": url.rpartition(":")[2],
        "BACE_TLS_CERT_FILE": "",
        "BACE_TLS_KEY_FILE": "",
        **settings,
    }
    stack.start("server", ["service.cli.main", "server"], environment)
    stack.wait_for(f"{url}/readyz", SERVER_PATIENCE_S)
    token_file = home / TOKEN_FILE
    if not token_file.is_file():
        raise CommandError(
            f"The server in {home} has tokens already, but {token_file} is not there.",
            Exit.FAILED,
            hint="Set BACE_TOKEN, or choose another folder with BACE_HOME.",
        )
    return LocalServer(stack, url, token_file.read_text(encoding="utf-8").strip(), home)
