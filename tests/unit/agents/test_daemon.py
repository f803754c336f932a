"""The agent's loop, on a clock that only tests move, with a server and workers in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.client import ServerClient
from agents.daemon import (
    MAX_BACKOFF_INTERVALS,
    REJECTED_RETRY_S,
    TRIES_A_LEASE,
    Agent,
    Backoff,
    Identity,
    phase_of,
)
from agents.environment import Devices, EnvironmentBuilder
from agents.identity import Credentials
from agents.journal import Journal
from agents.lease import Lease
from agents.link_probe_runner import LinkTests
from agents.link_probe_wire import Surroundings
from agents.processes import ProcessTable
from agents.protocol import (
    GpuTypeOffer,
    Heartbeat,
    HeartbeatReply,
    JoinReply,
    LinkTest,
    LinkTestReport,
    NodeOffer,
    ProcessState,
    StageProcess,
)
from agents.runtime import Ended, Launch
from agents.state import AgentState
from agents.workdir import WorkDir
from tests.unit.agents.builders import stage

INTERVAL_S, LEASE_S = 2.0, 10.0
SLOTS = {"node-a": 2}


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def epoch_s(self) -> float:
        return self.now_s

    def boot_s(self) -> float:
        return self.now_s


class FakeLauncher:
    """Workers that run until the test, or a stop, ends them. Outlives agents, as supervisors do."""

    def __init__(self, work_dir: WorkDir) -> None:
        self.work_dir = work_dir
        self.takes_to_start: Callable[[], None] = lambda: None
        self.starts: list[str] = []
        self.running: dict[str, Launch] = {}
        self.ends: dict[str, Ended] = {}

    def start(self, launch: Launch) -> None:
        assert not self.slots_of(launch.key) & self.held(), "a GPU was given to two processes"
        self.starts.append(launch.key)
        self.running[launch.key] = launch
        self.work_dir.process(launch.key).make()
        self.takes_to_start()

    def ended(self, key: str) -> Ended | None:
        if key in self.running:
            return None
        return self.ends.get(key, Ended(ProcessState.FAILED_TO_START, cause="never-started"))

    def stop(self, key: str, cause: str) -> None:
        if self.running.pop(key, None):
            self.ends[key] = Ended(ProcessState.STOPPED, -15, cause)

    def remove(self, key: str) -> None:
        self.work_dir.process(key).remove()

    def held(self) -> set[str]:
        return {slot for key in self.running for slot in self.slots_of(key)}

    def slots_of(self, key: str) -> set[str]:
        return {key[-1]}  # in this test a key's rank is its GPU

    def tell(self, key: str, **line: object) -> None:
        """What the worker reports."""
        with self.work_dir.process(key).report_file.open("a") as report:
            report.write(json.dumps(line) + "\n")


class FakeServer:
    """Desired state in, reports out; or whatever failure the test asks for."""

    def __init__(self) -> None:
        self.desired: list[StageProcess] = []
        self.forget: list[str] = []
        self.beats: list[Heartbeat] = []
        self.joins = 0
        self.steps: dict[int, int] = {}
        self.stored = 0
        self.failing: Callable[[httpx.Request], httpx.Response | None] = lambda request: None
        self.lose_reply = False
        self.takes_s = 0.0
        self.interval_s = INTERVAL_S
        self.clock: FakeClock | None = None
        self.link_tests: list[LinkTest] | None = None

    def answer(self, request: httpx.Request) -> httpx.Response:
        failure = self.failing(request)
        if failure is not None:
            return failure
        if request.url.path.endswith("/join"):
            self.joins += 1
            reply = JoinReply(heartbeat_interval_s=self.interval_s, lease_s=LEASE_S, server_time_s=0)
            return httpx.Response(200, content=reply.model_dump_json())
        beat = Heartbeat.model_validate_json(request.content)
        self.beats.append(beat)
        for report in beat.reports:
            if report.kind == "step":
                assert self.steps.setdefault(report.seq, report.step) == report.step, (
                    "a number was used twice"
                )
            self.stored = max(self.stored, report.seq)
        if self.clock is not None:
            self.clock.now_s += self.takes_s
        if self.lose_reply:
            raise httpx.ReadTimeout("lost")
        answer = HeartbeatReply(
            desired=self.desired,
            forget=self.forget,
            reports_stored=self.stored,
            heartbeat_interval_s=self.interval_s,
            lease_s=LEASE_S,
            server_time_s=0,
            link_tests=self.link_tests,
        )
        return httpx.Response(200, content=answer.model_dump_json(exclude_none=True))


class RecordingLog:
    def __init__(self) -> None:
        self.events: list[str] = []

    def info(self, event: str, **fields: object) -> None:
        self.events.append(event)

    warning = error = info


class World:
    """One work folder, one server, and the agent that is alive at present."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.server = FakeServer()
        self.server.clock = self.clock
        self.work_dir = WorkDir(path)
        self.launcher = FakeLauncher(self.work_dir)
        self.log = RecordingLog()
        self.links = LinkTests(
            (), Surroundings(self.clock.boot_s, lambda: "0" * 32), self._begin_to_measure, self.log
        )
        self.measuring = 0
        self.restart()

    def _begin_to_measure(self, work: Callable[[], None]) -> None:
        """Measurements that never come to an end."""
        self.measuring += 1

    def restart(self) -> None:
        """The agent dies without a word; another takes its place."""
        transport = httpx.MockTransport(self.server.answer)
        self.restart_with(ServerClient("http://bace.test", "t", transport=transport))

    def restart_with(self, client: ServerClient, credentials: Credentials | None = None) -> None:
        """The same with another way to the server."""
        self.state = AgentState(Journal(self.work_dir.journal_file))
        table = ProcessTable(
            self.state,
            self.launcher,
            self.work_dir,
            {"node-a": Devices(slots=2)},
            EnvironmentBuilder({}, self.work_dir.path / "secrets"),
            self.clock,
            self.log,
        )
        gpu = GpuTypeOffer(
            name="cpu-slot", memory_bytes=1e9, power_w=10, idle_w=1, sustained_flops=1e9, measured_at_s=1
        )
        offer = NodeOffer(
            node_id="node-a",
            region="eu",
            gpu=gpu,
            gpus=2,
            address="127.0.0.1",
            port_first=2000,
            port_last=2001,
        )
        self.agent = Agent(
            Identity("agent-1", "boot-1", "0", (offer,)),
            client,
            self.state,
            table,
            Lease(self.work_dir.lease_file),
            SLOTS,
            self.clock,
            self.log,
            Random(1),
            credentials,
            self.links,
        )

    def crash(self) -> None:
        self.state.close()
        self.restart()

    def pass_time(self, seconds: float, in_steps_of_s: float = 0.5) -> None:
        end_s = self.clock.now_s + seconds
        while self.clock.now_s < end_s:
            self.agent.step()
            self.clock.now_s += in_steps_of_s

    def close(self) -> None:
        self.state.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "agent")
    yield made
    made.close()


def test_it_joins_once_and_beats_at_the_servers_interval(world: World) -> None:
    world.pass_time(20.0)
    assert world.server.joins == 1
    times_s = [beat.clock_s for beat in world.server.beats]
    waits_s = [later - earlier for earlier, later in pairwise(times_s)]
    # The first wait is this agent's own part of the interval, up to the step in which time passes here.
    own_s = phase_of("agent-1") * INTERVAL_S
    assert own_s <= waits_s[0] <= own_s + 0.5
    assert set(waits_s[1:]) == {INTERVAL_S}


def test_agents_that_begin_together_spread_over_the_interval_and_stay_so(tmp_path: Path) -> None:
    phases = sorted(phase_of(f"agent-{number}") for number in range(1000))
    assert all(abs(phase - rank / 1000) < 0.06 for rank, phase in enumerate(phases))


def test_an_interval_that_was_changed_is_begun_at_the_agents_own_part(world: World) -> None:
    world.pass_time(10.0)
    world.server.interval_s = 5 * INTERVAL_S
    world.pass_time(60.0)
    times_s = [beat.clock_s for beat in world.server.beats]
    waits_s = [later - earlier for earlier, later in pairwise(times_s)]
    long = [wait_s for wait_s in waits_s if wait_s == 5 * INTERVAL_S]
    assert len(long) >= 4
    first = waits_s.index(5 * INTERVAL_S)
    assert waits_s[first - 1] == pytest.approx(phase_of("agent-1") * 5 * INTERVAL_S, abs=0.5)


def test_news_of_a_process_do_not_wait_for_the_interval(world: World) -> None:
    world.server.desired = [stage("a/0")]
    world.pass_time(0.5)
    world.launcher.tell("a/0", kind="ready")
    beats = len(world.server.beats)
    world.pass_time(0.5)
    assert len(world.server.beats) == beats + 1
    assert world.server.beats[-1].processes[0].state is ProcessState.READY


def test_lost_replies_bring_the_reports_again_and_the_numbers_stay(world: World) -> None:
    world.server.desired = [stage("a/0")]
    world.pass_time(0.5)
    world.server.lose_reply = True
    for number in range(1, 4):
        world.launcher.tell("a/0", kind="step", step=number, loss=1, step_time_s=1)
    world.pass_time(6.0)
    assert len([beat for beat in world.server.beats if beat.reports]) > 1
    world.server.lose_reply = False
    world.pass_time(12.0)
    assert world.server.steps == {1: 1, 2: 2, 3: 3}
    assert world.state.unsent == {}


def test_the_lease_counts_from_the_sending_and_a_late_answer_starts_nothing(world: World) -> None:
    world.server.desired = [stage("a/0")]
    world.server.takes_s = LEASE_S + 1
    world.pass_time(0.5)
    assert world.launcher.starts == []
    world.server.takes_s = 0.0
    world.pass_time(4.0)
    assert world.launcher.starts == ["a/0"]


def test_starts_that_are_slow_do_not_use_up_the_lease(world: World) -> None:
    def start_slowly() -> None:
        world.clock.now_s += 0.6 * LEASE_S

    world.launcher.takes_to_start = start_slowly
    world.server.desired = [stage("a/0"), stage("a/1", gpu_indices=[1])]
    world.pass_time(3.0 * LEASE_S)
    assert set(world.launcher.running) == {"a/0", "a/1"}
    assert "the lease has run out: stopping all workers" not in world.log.events


def test_a_lease_that_has_run_out_stops_the_workers_and_is_reported(world: World) -> None:
    world.server.desired = [stage("a/0"), stage("a/1", gpu_indices=[1])]
    world.pass_time(0.5)
    world.server.failing = lambda request: httpx.Response(503)
    world.pass_time(LEASE_S - 1.0)
    assert set(world.launcher.running) == {"a/0", "a/1"}
    world.pass_time(2.0)
    assert world.launcher.running == {}
    assert world.log.events.count("the lease has run out: stopping all workers") == 1
    world.server.failing = lambda request: None
    world.pass_time(20.0)
    told = {process.key: process.cause for process in world.server.beats[-1].processes}
    assert told == {"a/0": "lease-expired", "a/1": "lease-expired"}
    assert world.launcher.starts == ["a/0", "a/1"], "the same keys never start again"


def test_an_end_is_not_told_before_the_reports_that_came_before_it(world: World) -> None:
    world.server.desired = [stage("a/0")]
    world.pass_time(0.5)
    beats = len(world.server.beats)
    for number in range(2500):
        world.launcher.tell("a/0", kind="step", step=number + 1, loss=1, step_time_s=1)
    world.launcher.ends["a/0"] = Ended(ProcessState.EXITED, 0)
    del world.launcher.running["a/0"]
    world.pass_time(3.0, in_steps_of_s=0.1)
    seen = 0
    for beat in world.server.beats[beats:]:
        seen += len(beat.reports)
        ended = [process for process in beat.processes if process.state is ProcessState.EXITED]
        assert bool(ended) == (seen == 2500)
    assert seen == 2500


def test_a_server_that_has_forgotten_the_agent_is_joined_again(world: World) -> None:
    world.pass_time(0.5)
    world.server.failing = lambda request: (
        httpx.Response(404, json={"detail": "who?"}) if request.url.path.endswith("heartbeat") else None
    )
    world.pass_time(6.0)
    world.server.failing = lambda request: None
    beats = len(world.server.beats)
    world.pass_time(12.0)
    assert world.server.joins >= 2
    assert len(world.server.beats) > beats


def test_a_refusal_is_tried_again_slowly(world: World) -> None:
    tries = []

    def refuse(request: httpx.Request) -> httpx.Response:
        tries.append(world.clock.now_s)
        return httpx.Response(401)

    world.server.failing = refuse
    world.pass_time(3 * REJECTED_RETRY_S)
    assert len(tries) == 3
    assert "the server refuses this agent" in world.log.events


def test_a_body_that_is_too_large_is_halved_until_it_passes(world: World) -> None:
    world.server.desired = [stage("a/0")]
    world.pass_time(0.5)
    for number in range(1200):
        world.launcher.tell("a/0", kind="step", step=number + 1, loss=1, step_time_s=1)
    world.server.failing = lambda request: httpx.Response(413) if len(request.content) > 20_000 else None
    world.pass_time(30.0, in_steps_of_s=0.1)
    assert sorted(world.server.steps.values()) == list(range(1, 1201))


def test_backoff_grows_to_a_few_intervals_and_starts_anew() -> None:
    backoff = Backoff(Random(1))
    waits = [backoff.next_s(2.0, 600.0) for _ in range(8)]
    assert 1.5 <= waits[0] <= 2.0
    assert all(wait <= 2.0 * MAX_BACKOFF_INTERVALS for wait in waits)
    assert min(waits[4:]) >= 0.75 * 2.0 * MAX_BACKOFF_INTERVALS
    backoff.reset()
    assert backoff.next_s(2.0, 600.0) <= 2.0


def test_however_long_the_interval_a_server_that_is_back_is_found_before_the_lease_ends() -> None:
    backoff = Backoff(Random(1))
    assert max(backoff.next_s(20.0, 60.0) for _ in range(8)) <= 60.0 / TRIES_A_LEASE


def test_a_full_disk_starts_nothing_and_passes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from agents import journal

    def full(file: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    world.server.desired = [stage("a/0")]
    with monkeypatch.context() as patched:
        patched.setattr(journal, "_write_all", full)
        world.pass_time(6.0)
        assert world.launcher.starts == []
        assert "the journal cannot be written" in world.log.events
    world.pass_time(4.0)
    assert world.launcher.starts == ["a/0"]


class PowerCut(BaseException):
    """The agent is gone at this very point."""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_agent_that_dies_around_a_start_never_starts_it_again(
    moment: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = world.launcher.start

    def dying_start(launch: Launch) -> None:
        if moment == "after":
            start(launch)
        raise PowerCut

    world.server.desired = [stage("a/0")]
    monkeypatch.setattr(world.launcher, "start", dying_start)
    with pytest.raises(PowerCut):
        world.pass_time(1.0)
    monkeypatch.undo()
    world.crash()
    world.pass_time(6.0)
    told = world.server.beats[-1].processes[0]
    if moment == "after":
        assert (world.launcher.starts, told.state) == (["a/0"], ProcessState.STARTING)
    else:
        assert world.launcher.starts == []
        assert (told.state, told.cause) == (ProcessState.FAILED_TO_START, "never-started")


EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("desire"), st.lists(st.sampled_from(["a/0", "a/1", "b/0", "b/1", "c/0"]), max_size=3)
        ),
        st.tuples(st.just("network"), st.sampled_from(["ok", "ok", "lose request", "lose reply"])),
        st.tuples(st.just("time"), st.sampled_from([0.5, 3.0, 15.0])),
        st.tuples(st.just("exit"), st.sampled_from(["a/0", "a/1", "b/0"])),
        st.tuples(st.just("crash"), st.none()),
        st.tuples(st.just("forget"), st.sampled_from(["a/0", "a/1", "b/0"])),
    ),
    max_size=15,
).map(lambda events: [("desire", ["a/0", "b/1"]), ("time", 3.0), *events])


@given(events=EVENTS)
@settings(deadline=None, max_examples=30)
def test_across_crashes_and_a_bad_network_no_key_starts_twice_and_no_step_is_lost_or_doubled(
    events: list[tuple[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    world = World(tmp_path_factory.mktemp("world") / "agent")
    told: dict[str, int] = {}
    for kind, value in events:
        match kind:
            case "desire":
                keys = value if isinstance(value, list) else []
                world.server.desired = [stage(key, gpu_indices=[int(key[-1])]) for key in keys]
                world.server.forget = []
            case "network":
                world.server.lose_reply = value == "lose reply"
                lost = value == "lose request"
                world.server.failing = lambda request, lost=lost: httpx.Response(503) if lost else None
            case "time":
                for _ in range(3):
                    world.pass_time(float(str(value)) / 3)
                    for key in world.launcher.running:
                        told[key] = told.get(key, 0) + 1
                        world.launcher.tell(key, kind="step", step=told[key], loss=1, step_time_s=1)
            case "exit" if value in world.launcher.running:
                del world.launcher.running[str(value)]
                world.launcher.ends[str(value)] = Ended(ProcessState.EXITED, 0)
            case "crash":
                world.crash()
            case "forget":
                world.server.forget = [str(value)]
    world.server.failing = lambda request: None
    world.server.lose_reply = False
    world.server.desired = []
    world.pass_time(30.0)
    assert len(world.launcher.starts) == len(set(world.launcher.starts))
    assert world.launcher.running == {}
    assert len(world.server.steps) == sum(told.values()) > 0
    world.close()


def probe_of(number: int) -> LinkTest:
    return LinkTest(
        test_id=f"linktest-{number}",
        role="connect",
        address="192.0.2.1",
        port=2000,
        token="t" * 43,
        streams=0,
        max_bytes=0,
        max_s=0,
        open_s=10,
    )


def test_a_link_is_measured_as_long_as_the_server_wants_it(world: World) -> None:
    world.server.link_tests = [probe_of(1)]
    world.pass_time(5.0)
    assert world.measuring == 1
    running = world.links.running
    world.server.link_tests = None
    world.pass_time(3.0)
    assert [test.is_wanted for test in running] == [False]


def test_a_measurement_is_broken_off_before_a_worker_starts(world: World) -> None:
    world.server.link_tests = [probe_of(1)]
    world.pass_time(3.0)
    (running,) = world.links.running
    world.server.link_tests, world.server.desired = None, [stage("alloc-1/0")]
    wanted_at_start: list[bool] = []
    world.launcher.takes_to_start = lambda: wanted_at_start.append(running.is_wanted)
    world.pass_time(3.0)
    assert wanted_at_start == [False]


def test_a_measurement_is_broken_off_when_the_server_is_silent(world: World) -> None:
    world.server.link_tests = [probe_of(1)]
    world.pass_time(3.0)
    (running,) = world.links.running
    world.server.failing = lambda request: httpx.Response(503)
    world.pass_time(3.0)
    assert not running.is_wanted


def test_what_was_measured_is_told_at_once_and_once(world: World) -> None:
    world.pass_time(5.0)
    before = len(world.server.beats)
    world.links.told(LinkTestReport(test_id="linktest-1", state="done", latency_s=0.01))
    world.agent.step()
    assert [beat.link_tests is not None for beat in world.server.beats[before:]] == [True]
    world.pass_time(5.0)
    assert [beat.link_tests for beat in world.server.beats[before + 1 :]] == [None, None]


def test_a_server_that_does_not_know_of_measurements_is_not_told_of_them_again(world: World) -> None:
    world.pass_time(3.0)
    world.links.told(LinkTestReport(test_id="linktest-1", state="done", latency_s=0.01))
    world.server.failing = lambda request: httpx.Response(422) if b"link_tests" in request.content else None
    world.pass_time(REJECTED_RETRY_S + 3.0)
    world.server.beats.clear()
    world.pass_time(5.0)
    assert world.server.beats, "it beats again"
