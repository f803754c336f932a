"""One world: replicas on one database, agents on their machines, the network between them, users, and a seed."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from scheduler.job import FINAL_JOB_STATES
from service import tokens
from service.settings import Settings
from tests.simulation import faults as fault_classes
from tests.simulation import history
from tests.simulation.agent import SimulatedAgent
from tests.simulation.bus import Redis
from tests.simulation.clients import HUGE, KINDS, LINK_BPS, Caller, Operator, PriceFeed, Submitters, Treasurer
from tests.simulation.clocks import HostClock
from tests.simulation.credentials import Caretaker, Thief
from tests.simulation.database import Database
from tests.simulation.dice import Dice
from tests.simulation.door import Doorkeeper
from tests.simulation.gang import Gang
from tests.simulation.host import Host
from tests.simulation.network import Network, Weather
from tests.simulation.replica import Replica
from tests.simulation.rules import CommitRules
from tests.simulation.running import Running
from tests.simulation.trace import Trace
from tests.simulation.watchers import Watcher

DRIFT = 500e-6
PATIENCE_S = 1500.0
"""After healing: a job that has not ended by then waits for ever."""
HEALED_LOOK_S = 5.0
SHARED_TOKEN_EVERY = 4
PROJECTS = ("nlp", "vision")


@dataclass(frozen=True, slots=True)
class Size:
    """How much of a world."""

    agents: int = 20
    replicas: int = 3
    regions: int = 4

    @property
    def heartbeat_s(self) -> float:
        """Scaled with the number of agents: five in a second, whatever their number, but none more often than this."""
        return max(2.0, self.agents / 5.0)


class World:
    """Made inside its loop; `run` is its whole life."""

    def __init__(
        self, seed: int, size: Size, faults: frozenset[str], policy: str, keep_lines: bool = False
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.faults = faults
        self.dice = Dice(seed)
        self.trace = Trace(self.loop, lines=[] if keep_lines else None)
        self.loop.set_exception_handler(self._callback_failed)
        self.settings = _settings(size, policy)
        self.regions = tuple(f"region-{number}" for number in range(size.regions))
        self.running = Running(self.trace)
        self.redis = Redis(self.dice.of("redis"))
        self.database = Database(self.trace, self.dice.of("database"))
        door = Doorkeeper(self.database.driver, self.trace)
        self.replicas = [
            Replica(
                number,
                self.settings,
                self.database,
                self.redis,
                door,
                self.trace,
                self.dice.of(f"replica {number}"),
            )
            for number in range(size.replicas)
        ]
        self.network = Network(self.replicas, door, self.trace, self.dice)
        self.gangs: dict[str, Gang] = {}
        self.hosts = [self._host(number) for number in range(size.agents)]
        self.agents: list[SimulatedAgent] = []
        self.client_names: list[str] = []
        self.users: list[Submitters] = []
        self._background: list[asyncio.Task[Any]] = []
        self._nemesis: list[asyncio.Task[Any]] = []

    async def run(self, seconds: float) -> None:
        """Set up, live through faults for so long, heal, and judge."""
        try:
            await self._set_up()
            self._let_loose()
            await self._until_broken(seconds)
            if not self.trace.violations:
                await self._within_patience(self._heal())
                await self._until_all_have_ended()
            if not self.trace.violations:
                await self._within_patience(self._judge())
        finally:
            await self._end()

    async def _within_patience(self, asking: Coroutine[None, None, None]) -> None:
        """What is asked of a world in which nothing goes wrong is answered in the end."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asking
        except TimeoutError:
            self.trace.violation("after healing the servers answer", f"not within {PATIENCE_S:g} s")

    def start_replica(self, replica: Replica) -> None:
        replica.start()
        replica.lead_when_possible()

    async def _set_up(self) -> None:
        """Tokens, then the rules begin to look; replicas, links, prices, agents."""
        services = self.replicas[0].start()
        admin = await tokens.bootstrap(services)
        assert admin is not None
        root = Caller("admin", admin.text, self.network)
        rules = CommitRules(self.database.driver, self.running, self.trace)
        self.database.after_commit = rules.look
        rules.commit = self.database.commits
        agents = await self._token(root, {"name": "agents", "role": "agent"})
        users = {
            project: await self._token(root, {"name": project, "role": "submitter", "project": project})
            for project in PROJECTS
        }
        viewer = await self._token(root, {"name": "viewer", "role": "viewer", "project": PROJECTS[0]})
        self.watchers = [
            Watcher(
                f"watcher of {project or 'all'}", token, project, self.network, self.trace, self.dice.of(name)
            )
            for name, token, project in (("watcher", root.token, None), ("viewer", viewer, PROJECTS[0]))
        ]
        self.replicas[0].lead_when_possible()
        for replica in self.replicas[1:]:
            self.start_replica(replica)
        silent_s = 3 * self.settings.heartbeat_interval_s
        caretaker = Caller("caretaker", root.token, self.network)
        self.caretaker = Caretaker(caretaker, self.agents, self.dice.of("caretaker"))
        for number, host in enumerate(self.hosts):
            region = self.regions[number % len(self.regions)]
            dice = self.dice.of(f"agent {host.name}")
            # Most have a token of their own, some share one as those of one owner may.
            given = agents if number % SHARED_TOKEN_EVERY == 0 else await self.caretaker.token(host.name)
            self.agents.append(SimulatedAgent(host, region, given, self.network, self.trace, dice, silent_s))
            self._go(self._start_agent(self.agents[-1]))
        await asyncio.sleep(self.settings.heartbeat_interval_s)
        for src in self.regions:
            for dst in self.regions:
                if src != dst:
                    body = {"capacity_bps": LINK_BPS, "latency_s": 0.002}
                    await root.insist("PUT", f"/v1/links/{src}/{dst}", body)
        self._people(root, users)

    def _people(self, root: Caller, users: dict[str, str]) -> None:
        links = tuple((src, dst) for src in self.regions for dst in self.regions if src != dst)
        nodes = tuple(host.name for host in self.hosts)
        self.operator = Operator(
            Caller("operator", root.token, self.network), nodes, links, 40.0, self.dice.of("operator")
        )
        feed = Caller("feed", root.token, self.network)
        self.feed = PriceFeed(feed, self.regions, 30.0, self.trace, self.dice.of("prices"))
        self.reader = root
        owned = [agent for number, agent in enumerate(self.agents) if number % SHARED_TOKEN_EVERY]
        self.thief = Thief(Caller("thief", "", self.network), owned, 15.0, self.dice.of("thief"))
        gpus = sum(len(host.gpus) for host in self.hosts)
        treasurer = Caller("treasurer", root.token, self.network)
        self.treasurer = Treasurer(treasurer, PROJECTS, gpus, 25.0, self.dice.of("treasurer"))
        self.client_names = ["operator", "feed", "caretaker", "treasurer", *users]
        self.client_names += [watcher.name for watcher in self.watchers]
        every_s = max(6.0, 240.0 / len(self.hosts))
        # A policy that acts at random never says that a job cannot run, and does not ask where it may.
        is_random = self.settings.policy == "restless"
        kinds = KINDS if is_random else (*KINDS, HUGE)
        for project, token in users.items():
            user, dice = Caller(project, token, self.network), self.dice.of(project)
            self.users.append(
                Submitters(user, project, self.regions, every_s, self.trace, dice, kinds, not is_random)
            )

    def _let_loose(self) -> None:
        """Users, and whatever goes wrong."""
        self._go(self.feed.run())
        self._go(self.caretaker.run())
        self._watching = [self._go(watcher.run()) for watcher in self.watchers]
        for each in (self.operator, self.treasurer, self.thief, *self.users):
            self._nemesis.append(self._go(each.run()))
        weather = fault_classes.WEATHER
        self.network.weather = Weather(
            **{kind: odds for kind, odds in weather.items() if kind in self.faults}
        )
        for each in fault_classes.CLASSES:
            if each.name in self.faults:
                self._nemesis.append(self._go(self._strike(each)))

    async def _start_agent(self, agent: SimulatedAgent) -> None:
        await asyncio.sleep(self.dice.of("order of agents").uniform(0.0, self.settings.heartbeat_interval_s))
        await agent.run()

    async def _strike(self, fault: fault_classes.FaultClass) -> None:
        dice = self.dice.of(f"fault {fault.name}")
        while True:
            await asyncio.sleep(dice.expovariate(1.0 / fault.every_s))
            await fault.strike(self, dice)

    async def _heal(self) -> None:
        """Nothing goes wrong any more, and nobody submits: what is there has to come to its end."""
        self.trace.add("heals")
        for task in self._nemesis:
            task.cancel()
        self.network.weather = Weather()
        self.network.cuts.clear()
        self.network.end_of_the_late()
        self.database.is_busy = self.database.is_full = self.database.loses_answers = False
        self.redis.is_gone = self.feed.is_stale = False
        for replica in self.replicas:
            if not replica.is_alive:
                self.start_replica(replica)
            replica.is_cut_off = False
            replica.compute.stops_for_s = 0.0
            replica.stop_with_its_plan(0.0)
            replica.gate.open()
        for agent in self.agents:
            agent.gate.open()
            agent.host.disk.is_full = agent.host.cannot_start = False
            agent.host.disk.cut_in_writes = agent.host.dies_at_start = None
        await self.operator.restore()
        await self.treasurer.lift()

    async def _until_all_have_ended(self) -> None:
        end_s = self.loop.time() + PATIENCE_S
        while not self.trace.violations:
            await self._until_broken(HEALED_LOOK_S)
            states = self.database.driver.execute("SELECT job_id, state FROM jobs").fetchall()
            waiting = [(job_id, state) for job_id, state in states if state not in FINAL_JOB_STATES]
            if not waiting and not any(host.alive for host in self.hosts):
                return
            if self.loop.time() > end_s:
                why = (
                    self.database.driver.execute(
                        "SELECT name, reasons FROM jobs WHERE job_id = ?", (waiting[0][0],)
                    ).fetchone()
                    if waiting
                    else [host.name for host in self.hosts if host.alive]
                )
                self.trace.violation("after healing every job ends", f"{waiting[:5]}: {why}")

    async def _judge(self) -> None:
        """What only the whole history tells."""
        for rule, detail in history.broken(self.database.driver):
            self.trace.violation(rule, detail)
        rows = {
            name: (job_id, state, reasons, retries)
            for job_id, name, state, reasons, retries in self.database.driver.execute(
                "SELECT job_id, name, state, reasons, retries FROM jobs"
            )
        }
        await self._ask_for_some()
        await self._ask_the_watchers()
        self._judge_the_audit_log()
        for submission in (each for user in self.users for each in user.submissions):
            found = rows.get(submission.name)
            if submission.job_id is not None and (found is None or found[0] != submission.job_id):
                self.trace.violation(
                    "what was acknowledged is there", f"{submission.name} {submission.job_id}: {found}"
                )
            if found is None:
                continue
            allowed = {"trains": {"succeeded"}, "stubborn": {"succeeded"}, "huge": {"rejected"}}.get(
                submission.kind, {"failed"}
            )
            if submission.cancelled:
                allowed = {"cancelled"}
            elif submission.cancel_asked:
                allowed = allowed | {"cancelled"}
            if found[3] == self.settings.max_retries:  # too many things went wrong in a row
                allowed = allowed | {"failed"}
            if found[1] not in allowed:
                self.trace.violation(
                    "every job comes to its own end", f"{submission.name} is {found[1]}: {found[2]}"
                )

    async def _ask_for_some(self) -> None:
        """The API tells of jobs and their bills what the tables say."""
        found = self.database.driver.execute(
            "SELECT job_id, state, (SELECT coalesce(sum(amount_usd), 0) FROM ledger l WHERE l.job_id = j.job_id) "
            "FROM jobs j ORDER BY job_id LIMIT 5"
        )
        for job_id, state, spent_usd in found.fetchall():
            answer = await self.reader.insist("GET", f"/v1/jobs/{job_id}")
            told = None if answer is None else answer.json()
            if told is None or told["state"] != state or abs(told["cost_usd"]["total"] - spent_usd) > 1e-9:
                self.trace.violation("a job is told as it is stored", f"{job_id} {state} {spent_usd}: {told}")

    async def _ask_the_watchers(self) -> None:
        """A stream that was broken off and resumed tells what an unbroken one would have told."""
        for task in self._watching:
            task.cancel()
        await asyncio.sleep(0.0)
        for watcher in self.watchers:
            for detail in await watcher.missed(self.database.driver):
                self.trace.violation("a stream loses nothing", detail)

    def _judge_the_audit_log(self) -> None:
        """Whoever was told that something was done finds it there."""
        rows = self.database.driver.execute("SELECT trace_id FROM audit WHERE outcome = 'done'").fetchall()
        there = {trace_id for (trace_id,) in rows}
        staff = (self.operator, self.treasurer, self.caretaker, self.feed)
        for caller in (self.reader, *(each.caller for each in (*staff, *self.users))):
            missing = [request_id for request_id in caller.done if request_id not in there]
            if missing:
                self.trace.violation("what was done stands in the audit log", f"{missing[:5]}")

    async def _until_broken(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.trace.broken.wait()
        except TimeoutError:
            return

    async def _end(self) -> None:
        for task in (*self._nemesis, *self._background):
            task.cancel()
        self.network.end_of_the_late()
        for replica in self.replicas:
            if replica.is_alive:
                replica.crash()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in sorted(others, key=hash):
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.database.close()

    def _host(self, number: int) -> Host:
        name = f"node-{number:03d}"
        dice = self.dice.of(f"host {name}")
        drift = dice.uniform(-DRIFT, DRIFT) if "clock-step" in self.faults else 0.0
        clock = HostClock(self.loop, drift, dice.uniform(-120.0, 120.0))
        return Host(name, dice.choice((2, 2, 4)), clock, self.gangs, self.running, self.trace, dice)

    def _go(self, life: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(life)
        task.add_done_callback(self._ended)
        self._background.append(task)
        return task

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        where = "".join(traceback.format_exception(error)[-3:]) if error is not None else ""
        self.trace.violation("the simulation itself holds", f"{context['message']}: {error!r} {where}")

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.trace.violation("the simulation itself holds", repr(task.exception()))

    async def _token(self, root: Caller, body: dict[str, Any]) -> str:
        answer = await root.insist("POST", "/v1/tokens", body)
        assert answer is not None
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])


def _settings(size: Size, policy: str) -> Settings:
    heartbeat_s = size.heartbeat_s
    lease_s, grace_s = 5 * heartbeat_s, 6.0
    return Settings(
        # Several replicas, so the leader has to wait for a lease to end; what is behind the port is our business.
        database_url="postgresql+psycopg://simulated/bace",
        checkpoint_root="s3://checkpoints",
        policy=policy,
        heartbeat_interval_s=heartbeat_s,
        lease_s=lease_s,
        max_stop_grace_s=grace_s,
        node_lost_after_s=lease_s + grace_s + 5.5,
        leader_lease_s=6.0,
        plan_interval_s=max(5.0, heartbeat_s / 2),
        tick_s=max(1.0, heartbeat_s / 10),
        replan_debounce_s=5.0,
        replan_interval_s=20.0,
        promise_max_age_s=40.0,
        start_timeout_s=60.0,
        node_identity_lifetime_s=8 * lease_s,
        max_retries=6,
        retry_backoff_s=0.5,
        region_cooldown_s=30.0,
        bill_interval_s=max(10.0, heartbeat_s),
    )
