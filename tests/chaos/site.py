"""The site of a chaos run: servers on one database, agents in three regions, each behind a way that can be cut."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy

from tests.chaos.disks import SmallDisk, may_mount
from tests.chaos.network import Loop, Namespace, Relay, may_make_namespaces
from tests.chaos.programs import Program, free_port, kill_below, python

REGIONS = ("eu-west-2", "eu-west-3", "eu-central-1")
NODES = (*((f"node-{number}", region) for number, region in enumerate(REGIONS)), ("node-3", REGIONS[0]))
SLOTS = 3
"""GPUs (CPU slots) of a node."""
REPLICAS = 2
LEASE_S = 5.0
NODE_LOST_AFTER_S = 11.5
LEADER_LEASE_S = 3.0
DATABASE_MIB, WORK_MIB = 96, 24
SETTINGS = {
    "BACE_HEARTBEAT_INTERVAL_S": "0.4",
    "BACE_PLAN_INTERVAL_S": "1",
    "BACE_TICK_S": "0.3",
    "BACE_BILL_INTERVAL_S": "2",
    "BACE_LEASE_S": str(LEASE_S),
    "BACE_MAX_STOP_GRACE_S": "1",
    "BACE_NODE_LOST_AFTER_S": str(NODE_LOST_AFTER_S),
    "BACE_LEADER_LEASE_S": str(LEADER_LEASE_S),
    "BACE_START_TIMEOUT_S": "60",
    "BACE_RETRY_BACKOFF_S": "0.2",
    "BACE_MAX_RETRIES": "100",
    "BACE_REGION_COOLDOWN_S": "2",
}
READY_TIMEOUT_S = 90.0


class SiteError(Exception):
    """The site could not be brought up, or did not come back."""


class Node:
    """An agent with its folder, its disk and its way to the servers."""

    def __init__(self, name: str, folder: Path, disk: SmallDisk | None, namespace: Namespace | None) -> None:
        self.name = name
        self.folder = folder
        self.disk = disk
        self.namespace = namespace
        self.relay: Relay
        self.agent: Program


class Site:
    """Brings everything up, heals it, and takes it down. Nothing outlives `close`."""

    def __init__(self, folder: Path, database: str, postgres_url: str = "") -> None:
        self.folder = folder
        self.witnesses = folder / "witnesses"
        self.home = folder / "home"
        self.witnesses.mkdir(parents=True)
        self.home.mkdir()
        self._loop = Loop()
        self.nodes: list[Node] = []
        self.servers: list[Program] = []
        self.redis: Program | None = None
        self.home_disk: SmallDisk | None = None
        self._admin_url = postgres_url if database == "postgres" else ""
        self._database_name = f"bace_chaos_{uuid.uuid4().hex[:12]}"
        self.database_url = f"sqlite:///{self.home / 'bace.db'}"
        self.http = httpx.Client(trust_env=False, verify=False, timeout=10)  # noqa: S501 - loopback, without TLS

    def open(self) -> None:
        """Everything runs and is ready afterwards. SiteError where it does not become so."""
        mounts = may_mount(self.folder / "probe")
        if self._admin_url:
            self._admin(f'CREATE DATABASE "{self._database_name}"')
            url = sqlalchemy.engine.make_url(self._admin_url).set(database=self._database_name)
            self.database_url = url.render_as_string(hide_password=False)
            self._start_redis()
        elif mounts:
            self.home_disk = SmallDisk(self.home, DATABASE_MIB)
        self.ports = [free_port() for _ in range(REPLICAS if self._admin_url else 1)]
        self.servers = [self._server(number, port) for number, port in enumerate(self.ports)]
        for server in self.servers:  # the first makes the tables and the first token
            server.start()
            self.until(f"{server.name} is ready", lambda: self.ready(self.servers.index(server)))  # noqa: B023
        self._describe_regions()
        token = self.call("POST", "/v1/tokens", {"name": "agents", "role": "agent"})["token"]
        spaces = may_make_namespaces()
        for number, (name, region) in enumerate(NODES):
            self.nodes.append(self._node(number, name, region, token, mounts=mounts, spaces=spaces))
            self.nodes[-1].agent.start()
        self.until("all nodes are ready", self.all_nodes_ready)

    @property
    def programs(self) -> list[Program]:
        """All that are to run."""
        redis = [self.redis] if self.redis is not None else []
        return [*redis, *self.servers, *(node.agent for node in self.nodes)]

    def look(self) -> None:
        """Start again whatever has ended by itself."""
        for program in self.programs:
            program.look()

    def ready(self, number: int) -> bool:
        """Whether a server says so."""
        with contextlib.suppress(httpx.HTTPError):
            url = f"http://127.0.0.1:{self.ports[number]}/readyz"
            return self.http.get(url, timeout=2).status_code == 200
        return False

    def all_nodes_ready(self) -> bool:
        """Whether the servers can plan on every node."""
        nodes = self.call("GET", "/v1/nodes")["items"]
        return len(nodes) == len(NODES) and all(node["state"] == "ready" for node in nodes)

    def until(self, what: str, question: Callable[[], bool], timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait for the answer to be true. SiteError after `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        while not question():
            if time.monotonic() > deadline_s:
                raise SiteError(f"not within {timeout_s:g} s: {what}\n{self.log_ends()}")
            self.look()
            time.sleep(0.2)

    def headers(self) -> dict[str, str]:
        """With the first administrator's token."""
        return {"Authorization": f"Bearer {(self.home / 'admin-token').read_text().strip()}"}

    def call(self, method: str, path: str, document: dict[str, Any] | None = None) -> Any:
        """Ask the first server that answers, as administrator. SiteError where none does, or one refuses."""
        for port in self.ports:
            with contextlib.suppress(httpx.TransportError):
                answer = self.http.request(
                    method, f"http://127.0.0.1:{port}{path}", json=document, headers=self.headers()
                )
                if answer.status_code < 400:
                    return answer.json()
                raise SiteError(f"{method} {path}: {answer.status_code} {answer.text}")
        raise SiteError(f"{method} {path}: no server answers\n{self.log_ends()}")

    def log_ends(self) -> str:
        """The last lines of every program."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs)

    def close(self) -> None:
        """Take everything down and away, whatever state it is in."""
        for program in self.programs:
            with contextlib.suppress(OSError):
                program.kill()
        kill_below(self.folder)
        self.http.close()
        for node in self.nodes:
            node.relay.close()
        self._loop.close()
        for node in self.nodes:
            if node.namespace is not None:
                node.namespace.close()
            if node.disk is not None:
                node.disk.close()
        if self.home_disk is not None:
            self.home_disk.close()
        if self._admin_url:
            self._admin(f'DROP DATABASE IF EXISTS "{self._database_name}" WITH (FORCE)')

    def _start_redis(self) -> None:
        port = str(free_port())
        arguments = (
            "redis-server",
            "--port",
            port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(self.folder),
        )
        self.redis = Program("redis", arguments, {}, self.folder / "redis.log")
        self.redis.start()
        self._redis_url = f"redis://127.0.0.1:{port}/0"

    def _server(self, number: int, port: int) -> Program:
        environment = {
            **SETTINGS,
            "BACE_HOME": str(self.home),
            "BACE_DATABASE_URL": self.database_url,
            "BACE_CHECKPOINT_ROOT": (self.folder / "checkpoints").as_uri(),
            "BACE_PORT": str(port),
            **({"BACE_REDIS_URL": self._redis_url} if self.redis is not None else {}),
        }
        name = f"server-{number}"
        return Program(name, python("service.cli.main", "server"), environment, self.folder / f"{name}.log")

    def _node(self, number: int, name: str, region: str, token: str, *, mounts: bool, spaces: bool) -> Node:
        folder = self.folder / name
        folder.mkdir()
        disk = SmallDisk(folder, WORK_MIB) if mounts else None
        namespace = Namespace(number) if spaces else None
        node = Node(name, folder, disk, namespace)
        address = "127.0.0.1" if namespace is None else namespace.outside_address
        node.relay = Relay(self._loop, address, self.ports)
        first = 20000 + self.ports[0] % 100 * 100 + 25 * number
        arguments = (
            *(namespace.prefix if namespace is not None else ()),
            *python("agents", "--url", f"http://{address}:{node.relay.port}", "--node", name),
            *("--region", region, "--cpu-slots", str(SLOTS), "--sustained-flops", "2e10"),
            *(
                "--address",
                "127.0.0.1",
                "--ports",
                f"{first}-{first + 24}",
                "--work-dir",
                str(folder / "agent"),
            ),
        )
        node.agent = Program(name, arguments, {"BACE_TOKEN": token}, self.folder / f"{name}.log")
        return node

    def _describe_regions(self) -> None:
        for region in REGIONS:
            self.call("PUT", f"/v1/regions/{region}", {"pue": 1.2, "uplink_bps": 40e9, "downlink_bps": 40e9})
        for src in REGIONS:
            self.call("PUT", "/v1/prices", {"kind": "electricity", "region": src, "value": 0.1})
            for dst in REGIONS:
                if src != dst:
                    self.call("PUT", f"/v1/links/{src}/{dst}", {"capacity_bps": 25e9, "latency_s": 0.005})
                    price = {"kind": "egress", "region": src, "dst": dst, "value": 0.02}
                    self.call("PUT", "/v1/prices", price)

    def _admin(self, statement: str) -> None:
        engine = sqlalchemy.create_engine(
            self._admin_url, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool
        )
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text(statement))
        engine.dispose()
