"""A whole server in one process, on a clock that only tests move, with agents that only say what tests tell them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Engine, insert

from agents.causes import NOT_EXECUTABLE
from agents.protocol import (
    BusyReport,
    CheckpointReport,
    GpuTypeOffer,
    Heartbeat,
    HeartbeatReply,
    JoinReply,
    JoinRequest,
    LinkTest,
    LinkTestReport,
    LogReport,
    NodeOffer,
    ProcessReport,
    ProcessState,
    Report,
    StageProcess,
    StepReport,
)
from scheduler.snapshot import Snapshot
from service import agents_link, jobs
from service.access import Credential, Principal, Role
from service.accounts import make_administrator
from service.adapters.compute import InlineCompute
from service.adapters.database import InlineDb
from service.adapters.local_bus import LocalBus
from service.control import leader
from service.control.leader import Leadership
from service.control.liveness import Liveness
from service.control.reconcile import reconcile
from service.control.scheduling import Outcome, Scheduler
from service.db.records import (
    AllocationRecord,
    EventRecord,
    JobRecord,
    LinkRecord,
    ProcessRecord,
    PromiseRecord,
    SeriesRecord,
    TokenRecord,
)
from service.db.repositories import access, allocations, cluster, events, prices, promises
from service.db.repositories import jobs as job_rows
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.db.tables import Base, LeaderRow
from service.services import Services
from service.settings import Settings
from service.snapshots import SnapshotReader

T = TypeVar("T")

START_S = 1_800_000_000.0
TOKEN = "token-agents"
CREDENTIAL = Credential(TOKEN)
ADMIN = Principal("token-admin", "admin", Role.ADMIN, "*", "0" * 64, "account-admin", "admin")
ENDED = (ProcessState.EXITED, ProcessState.STOPPED, ProcessState.FAILED_TO_START)


class ManualClock:
    """`ports.Clock` that stands until it is moved; whoever sleeps wakes when it passes his time."""

    def __init__(self, now_s: float = START_S) -> None:
        self._now_s = now_s
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now_s

    def monotonic(self) -> float:
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now_s + seconds, sleeper))
        await sleeper

    def advance(self, seconds: float) -> None:
        self._now_s += seconds
        due = [sleeper for at_s, sleeper in self._sleepers if at_s <= self._now_s]
        self._sleepers = [entry for entry in self._sleepers if entry[0] > self._now_s]
        for sleeper in due:
            if not sleeper.done():
                sleeper.set_result(None)


class CountingIds:
    """`ports.Ids` that count."""

    def __init__(self) -> None:
        self._count = 0

    def new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}-{self._count:026d}"

    def secret(self) -> str:
        return self.new("secret")


def make_tables(engine: Engine) -> None:
    """The schema as the migrations leave it."""
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(LeaderRow).values(id=1, project="*", epoch=0, holder="", expires_at_s=0.0))


class World:
    """The server's parts, driven by hand."""

    def __init__(self, engine: Engine, **settings: Any) -> None:
        self.engine = engine
        self.clock = ManualClock()
        self.ids = CountingIds()
        self.bus = LocalBus()
        told = Settings(
            **{
                "checkpoint_root": "file:///srv/checkpoints",
                "database_url": engine.url.render_as_string(hide_password=False),
                "retry_backoff_s": 8.0,
                **settings,
            }
        )
        self.services = Services(
            settings=told,
            clock=self.clock,
            ids=self.ids,
            db=InlineDb(engine, self.bus),
            bus=self.bus,
            compute=InlineCompute(),
            snapshots=SnapshotReader(told.region_cooldown_s),
        )

    async def start(self) -> None:
        """Tables, the agents' token, and a leader."""
        make_tables(self.engine)
        now_s = self.clock.now()

        def work(session: Session) -> None:
            make_administrator(session, ADMIN.account_id, now_s, "test")
            access.add_token(
                session,
                TokenRecord(
                    TOKEN,
                    ADMIN.account_id,
                    "*",
                    "agents",
                    "agent",
                    "bace_test",
                    "1" * 64,
                    now_s,
                    None,
                    None,
                ),
            )

        await self.run(work)
        await self.lead("world")

    async def lead(self, holder: str) -> Leadership:
        """A new epoch, and its loops."""
        taken = await leader.take(self.services, holder)
        assert taken is not None, "another leads"
        self.leadership = taken
        self.scheduler = Scheduler(self.services, taken)
        self.liveness = Liveness(self.services, taken)
        return taken

    async def plan(self) -> Outcome:
        self.clock.advance(0.001)  # no two rounds at one moment
        return await self.scheduler.plan()

    async def snapshot(self) -> Snapshot:
        """What a decision would look at now."""
        now_s = self.clock.now()
        return await self.services.db.read(lambda session: self.services.snapshots.load(session, now_s))

    async def reconcile(self) -> int:
        return await reconcile(self.services, self.leadership)

    async def run(self, work: Callable[[Session], T]) -> T:
        return await self.services.db.run(work)

    async def submit(self, **changes: Any) -> str:
        """A job of three stages of one slot; its id."""
        submitted = await jobs.submit(self.services, ADMIN, job_document(**changes), None)
        return submitted.view.job.job_id

    async def cancel(self, job_id: str) -> JobRecord:
        return (await jobs.cancel(self.services, ADMIN, job_id, None)).job

    async def job(self, job_id: str) -> JobRecord:
        job = await self.run(lambda session: job_rows.get(session, EVERYTHING, job_id))
        assert job is not None
        return job

    async def allocation(self, job_id: str) -> AllocationRecord:
        found = await self.run(lambda session: allocations.live_of_job(session, job_id))
        assert found is not None, f"{job_id} holds nothing"
        return found

    async def allocations(self, job_id: str) -> list[AllocationRecord]:
        return await self.run(lambda session: allocations.of_jobs(session, EVERYTHING, [job_id]))

    async def processes(self, job_id: str) -> list[ProcessRecord]:
        """Of every generation."""
        found = await self.allocations(job_id)
        return [
            process
            for allocation in found
            for process in await self.run(
                lambda session, held=allocation: allocations.processes_of(session, held.allocation_id)
            )
        ]

    async def held(self) -> tuple[int, int, int]:
        """(GPUs, directed links, ports) that anybody holds."""

        def work(session: Session) -> tuple[int, int, int]:
            ports = sum(len(allocations.held_ports(session, node.node_id)) for node in cluster.nodes(session))
            return len(allocations.held_gpus(session)), len(allocations.held_links(session)), ports

        return await self.run(work)

    async def events(self) -> list[EventRecord]:
        return await self.run(lambda session: events.after(session, EVERYTHING, 0, 100_000))

    async def link(self, *regions: str, bps: float = 10e9, latency_s: float = 0.001) -> None:
        """Links both ways between all of these."""

        def work(session: Session) -> None:
            for src in regions:
                for dst in regions:
                    if src != dst:
                        cluster.add_link(session, LinkRecord(src, dst, bps, latency_s, 1))

        await self.run(work)

    async def price(
        self,
        kind: str,
        region: str,
        points: Iterable[tuple[float, float]],
        *,
        dst: str = "",
        gpu_type: str = "",
    ) -> None:
        """Points (valid from, seconds after the start; value), known at once."""
        series_id = self.ids.new("series")
        unit = {"electricity": "usd_per_kwh", "egress": "usd_per_gb", "rent": "usd_per_gpu_hour"}[kind]
        rows = [(START_S + valid_s, START_S, value) for valid_s, value in points]

        def work(session: Session) -> None:
            prices.add(
                session,
                SeriesRecord(series_id, kind, region, gpu_type, dst, unit, "USD", f"test of {region}"),
            )
            prices.add_points(session, series_id, rows)

        await self.run(work)

    async def cluster_of(self, *regions: str, slots: int = 1) -> list[FakeAgent]:
        """One agent a region, joined and linked."""
        agents = [FakeAgent(self, region, slots=slots) for region in regions]
        for agent in agents:
            await agent.join()
        await self.link(*regions)
        return agents

    async def promises(self) -> dict[str, PromiseRecord]:
        """By job."""
        found = await self.run(promises.all_of_them)
        return {record.job_id: record for record in found}

    async def told(self, job_id: str) -> list[tuple[str, dict[str, Any]]]:
        """What happened to a job: kind and data of its events."""
        return [(event.kind, event.data) for event in await self.events() if event.object_id == job_id]

    async def until_running(self, agents: Iterable[FakeAgent]) -> None:
        """Whatever was started gets ready."""
        agents = list(agents)
        await self.beats(agents)
        for agent in agents:
            agent.ready()
        await self.beats(agents)

    async def until_stopped(self, agents: Iterable[FakeAgent]) -> None:
        """Whatever was told to stop does."""
        agents = list(agents)
        await self.beats(agents)  # are told
        await self.beats(agents)  # have done it

    async def beats(self, agents: Iterable[FakeAgent]) -> None:
        for agent in agents:
            await agent.beat()


def job_document(**changes: Any) -> dict[str, Any]:
    """A small transformer; `changes` replace whole sections, or add to `training` and `parallelism`."""
    document: dict[str, Any] = {
        "name": "tiny",
        "project": "nlp",
        "model": {
            "layers": 6,
            "hidden": 64,
            "heads": 4,
            "kv_heads": 4,
            "head_dim": 16,
            "ffn": 128,
            "gated_mlp": True,
            "vocab": 256,
            "seq_len": 32,
        },
        "training": {"steps": 4, "micro_batch": 1, "micro_batches": 4, "dtype": "fp32"},
        "parallelism": {"stages": 3},
        "run": {"builtin": "gpt"},
    }
    for name, value in changes.items():
        if name in ("training", "parallelism"):
            document[name] = {**document[name], **value}
        else:
            document[name] = value
    return document


@dataclass
class FakeAgent:
    """An agent with one node. It starts what is desired, stops what is not, and says what tests make it say."""

    world: World
    region: str
    slots: int = 1
    address: str = "10.0.0.1"
    started: list[str] = field(default_factory=list)
    """Every key that it ever started, in order."""
    running: dict[str, ProcessReport] = field(default_factory=dict)
    """What it reports: every process it knows and has not been told to forget."""
    known: dict[str, StageProcess] = field(default_factory=dict)
    unsent: list[Report] = field(default_factory=list)
    seq: int = 0
    boot_id: str = "boot-1"
    answered_s: float = 0.0
    """Time of the last answer that it has read."""
    clock_ahead_s: float = 0.0
    """Of the server's."""
    refuses_to_stop: bool = False
    abilities: frozenset[str] = frozenset()
    link_tests: list[LinkTest] = field(default_factory=list)
    """What it is to measure, by the last answer."""
    measured: list[LinkTestReport] = field(default_factory=list)
    """What it will tell of that with its next heartbeat."""

    @property
    def agent_id(self) -> str:
        return f"agent-{self.region}"

    @property
    def node_id(self) -> str:
        return f"node-{self.region}"

    async def join(self, **changes: Any) -> JoinReply:
        offer = {
            "node_id": self.node_id,
            "region": self.region,
            "gpu": GpuTypeOffer(
                name="cpu-slot",
                memory_bytes=8e9,
                power_w=20.0,
                idle_w=5.0,
                sustained_flops=2e10,
                measured_at_s=self.world.clock.now(),
            ),
            "gpus": self.slots,
            "address": self.address,
            "port_first": 29500,
            "port_last": 29509,
            **changes,
        }
        request = JoinRequest(
            agent_id=self.agent_id,
            nodes=[NodeOffer(**offer)],
            agent_version="0.1.0",
            clock_s=self.world.clock.now(),
        )
        return await self.send_join(request)

    async def beat(self) -> HeartbeatReply:
        """One heartbeat: say everything, then do what the answer wants."""
        beat = self.heartbeat()
        self.world.clock.advance(0.001)  # no two heartbeats at one moment
        return self.obey(await self.send(beat))

    async def send_join(self, request: JoinRequest) -> JoinReply:
        return await agents_link.join(self.world.services, CREDENTIAL, request)

    async def send(self, beat: Heartbeat) -> HeartbeatReply:
        return await agents_link.heartbeat(
            self.world.services, CREDENTIAL, beat, self.abilities, self.answered_s
        )

    def heartbeat(self) -> Heartbeat:
        return Heartbeat(
            agent_id=self.agent_id,
            boot_id=self.boot_id,
            clock_s=self.world.clock.now() + self.clock_ahead_s,
            processes=list(self.running.values()),
            reports=list(self.unsent),
            link_tests=list(self.measured) or None,
        )

    def obey(self, reply: HeartbeatReply) -> HeartbeatReply:
        self.answered_s = reply.server_time_s
        self.link_tests, self.measured = list(reply.link_tests or ()), []
        self.unsent = [report for report in self.unsent if report.seq > reply.reports_stored]
        for key in reply.forget:
            self.running.pop(key, None)
        desired = {process.key: process for process in reply.desired}
        for key, process in desired.items():
            if key not in self.started:
                self.started.append(key)
                self.known[key] = process
                self.running[key] = ProcessReport(key=key, state=ProcessState.STARTING)
        for key, report in self.running.items():
            if key not in desired and report.state not in ENDED and not self.refuses_to_stop:
                self.running[key] = ProcessReport(key=key, state=ProcessState.STOPPED, exit_code=0)
        return reply

    def ready(self) -> None:
        """Every process that has been started has found its gang."""
        for key, report in self.running.items():
            if report.state == ProcessState.STARTING:
                self.running[key] = ProcessReport(key=key, state=ProcessState.READY)

    def exit(self, code: int = 0, cause: str | None = None, lines: Iterable[str] = ()) -> None:
        """Every process that lives ends by itself."""
        for key, report in self.running.items():
            if report.state not in ENDED:
                self.running[key] = ProcessReport(
                    key=key, state=ProcessState.EXITED, exit_code=code, cause=cause, last_lines=list(lines)
                )

    def cannot_start(self, detail: str) -> None:
        """Every process that lives turns out not to be executable."""
        for key, report in self.running.items():
            if report.state not in ENDED:
                self.running[key] = ProcessReport(
                    key=key, state=ProcessState.FAILED_TO_START, cause=NOT_EXECUTABLE, detail=detail
                )

    def alive(self) -> list[str]:
        return [key for key, report in self.running.items() if report.state not in ENDED]

    def step(self, *steps: int, key: str | None = None, **told: Any) -> None:
        """Its first process reports these steps; `told` are further fields of a report."""
        for step in steps:
            self._report(
                StepReport(
                    seq=self._next(),
                    key=key or self.alive()[0],
                    step=step,
                    loss=5.0 / step,
                    step_time_s=1.0,
                    tokens=128,
                    at_s=self.world.clock.now(),
                    **told,
                )
            )

    def checkpoint(self, step: int, key: str | None = None) -> None:
        key = key or self.alive()[0]
        uri = f"{self.known[key].env['BACE_CHECKPOINT_URI']}/step-{step:08d}"
        self._report(
            CheckpointReport(seq=self._next(), key=key, step=step, uri=uri, at_s=self.world.clock.now())
        )

    def busy(self, fraction: float) -> None:
        now_s = self.world.clock.now()
        for key in self.alive():
            self._report(
                BusyReport(seq=self._next(), key=key, from_s=now_s - 1, to_s=now_s, busy_fraction=fraction)
            )

    def log(self, first_line: int, *lines: str) -> None:
        self._report(
            LogReport(
                seq=self._next(),
                key=self.alive()[0],
                first_line=first_line,
                lines=list(lines),
                at_s=self.world.clock.now(),
            )
        )

    def crash(self) -> None:
        """The host is gone with all that ran on it; the journal stays, the next start is a new boot."""
        for key in self.alive():
            self.running[key] = ProcessReport(
                key=key, state=ProcessState.EXITED, exit_code=-9, cause="supervisor-lost"
            )
        self.boot_id = f"boot-{int(self.boot_id.removeprefix('boot-')) + 1}"
        self.answered_s = 0.0

    def _next(self) -> int:
        self.seq += 1
        return self.seq

    def _report(self, report: Report) -> None:
        self.unsent.append(report)
