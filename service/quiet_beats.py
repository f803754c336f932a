"""Heartbeats that move nothing: most of them. All that have come in together are read and stored at once.

A heartbeat is quiet where its agent is known by its token, none of its nodes is lost, what it says of its processes is
what the rows say, it has measured no link, and what it reports are steps, lines and busy fractions of processes that
live, none of them a job's last step. It changes nothing but when its agent was heard, the rows of its reports, and how
far its jobs are. Any other is left to `agents_link.heartbeat`, which does the same for a quiet one, one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.protocol import (
    LINK_TESTS,
    CheckpointReport,
    Heartbeat,
    LinkTest,
    Report,
    StageProcess,
    StepReport,
)
from service import link_measurements
from service.agent_clocks import is_next, newest
from service.db import agent_queries
from service.db.agent_queries import Heard, JobProgress, LiveProcess
from service.db.records import AgentRecord
from service.db.session import Session
from service.lifecycle import ENDED_PROCESS_STATES, PENDING, NodeState
from service.report_rows import Rows, reached_step

MAX_LAUNCHES = 20_000
"""Launch documents that are remembered; beyond, the oldest are read again."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat, the token that it came with, what its agent can beside the rest, and which answer it has read."""

    token_id: str
    heartbeat: Heartbeat
    abilities: frozenset[str] = frozenset()
    answered_s: float | None = None


@dataclass(frozen=True, slots=True)
class Quiet:
    """What a quiet heartbeat is answered."""

    reports_stored: int
    desired: tuple[StageProcess, ...]
    at_s: float
    is_next: bool
    link_tests: tuple[LinkTest, ...] = ()
    has_reports: bool = False
    """Some of them were new, and are stored."""


class Launches:
    """What processes are started with. A key is never used twice and its document never changes, so it may be
    remembered, whoever changes the database."""

    def __init__(self) -> None:
        self._known: dict[str, StageProcess] = {}

    def of(self, session: Session, keys: Sequence[str]) -> dict[str, StageProcess]:
        """By key."""
        unknown = [key for key in keys if key not in self._known]
        for key, document in agent_queries.launches(session, unknown).items():
            self._known[key] = StageProcess.model_validate(document)
        found = {key: self._known[key] for key in keys}
        while len(self._known) > MAX_LAUNCHES:
            del self._known[next(iter(self._known))]
        return found


def stamp_quiet(
    session: Session, beats: Sequence[Beat], launches: Launches, at_s: float
) -> list[Quiet | None]:
    """Store the quiet ones among these; what each is answered, None for one that is not quiet."""
    ids = sorted({beat.heartbeat.agent_id for beat in beats})
    agents = agent_queries.agents_with_ids(session, ids)
    agent_of_node, upset = {}, set()
    for node_id, agent_id, state in agent_queries.node_states_of(session, ids):
        agent_of_node[node_id] = agent_id
        if state == NodeState.LOST:
            upset.add(agent_id)
    live: dict[str, dict[str, LiveProcess]] = defaultdict(dict)
    for process in agent_queries.live_states_on(session, sorted(agent_of_node)):
        live[agent_of_node[process.node_id]][process.key] = process
    quiet = [
        beat.heartbeat.agent_id not in upset
        and _is_quiet(beat, agents.get(beat.heartbeat.agent_id), live[beat.heartbeat.agent_id])
        for beat in beats
    ]
    told = _new_reports(beats, quiet, agents)
    progress = agent_queries.progress_of(session, sorted(_steps(beats, told, live)))
    _leave_last_steps(beats, quiet, told, live, progress)
    _store_reports(session, beats, told, live, progress, at_s)
    stored = {agent_id: agent.reports_stored for agent_id, agent in agents.items()}
    for position, reports in told.items():
        stored[beats[position].heartbeat.agent_id] = max(report.seq for report in reports)
    calm = [beat.heartbeat for beat, is_quiet in zip(beats, quiet, strict=True) if is_quiet]
    heard = [(beat, *newest(agents[beat.agent_id], beat.boot_id, beat.clock_s, at_s)) for beat in _last(calm)]
    agent_queries.heard_all(
        session,
        [Heard(beat.agent_id, boot, offset_s, stored[beat.agent_id]) for beat, boot, offset_s in heard],
        at_s,
    )
    following = _following(agents, beats)
    wanted = [process.key for beat in calm for process in live[beat.agent_id].values() if _is_wanted(process)]
    documents = launches.of(session, wanted)
    able = {beat.heartbeat.agent_id for beat in beats if LINK_TESTS in beat.abilities}
    measuring = link_measurements.wanted(session, able) if able else {}
    return [
        Quiet(
            stored[beat.heartbeat.agent_id],
            tuple(
                documents[process.key]
                for process in live[beat.heartbeat.agent_id].values()
                if _is_wanted(process)
            ),
            at_s,
            following[position],
            tuple(measuring.get(beat.heartbeat.agent_id, ())),
            has_reports=position in told,
        )
        if quiet[position]
        else None
        for position, beat in enumerate(beats)
    ]


def _last(beats: Sequence[Heartbeat]) -> list[Heartbeat]:
    """Of each agent the one that was sent last."""
    last: dict[str, Heartbeat] = {}
    for beat in beats:
        known = last.get(beat.agent_id)
        if known is None or known.clock_s < beat.clock_s:
            last[beat.agent_id] = beat
    return list(last.values())


def _new_reports(
    beats: Sequence[Beat], quiet: list[bool], agents: Mapping[str, AgentRecord]
) -> dict[int, list[Report]]:
    """What the quiet ones report, by their position. A second one of an agent that brings reports is quiet no more."""
    told: dict[int, list[Report]] = {}
    telling: set[str] = set()
    for position, beat in enumerate(each.heartbeat for each in beats):
        if not (quiet[position] and beat.reports):
            continue
        new = [report for report in beat.reports if report.seq > agents[beat.agent_id].reports_stored]
        if new and beat.agent_id in telling:
            quiet[position] = False
        elif new:
            told[position] = new
            telling.add(beat.agent_id)
    return told


def _leave_last_steps(
    beats: Sequence[Beat],
    quiet: list[bool],
    told: dict[int, list[Report]],
    live: Mapping[str, Mapping[str, LiveProcess]],
    progress: Mapping[str, JobProgress],
) -> None:
    """Those that bring a job to its last step are quiet no more: their job may have to move."""
    ending = {
        job_id
        for job_id, steps in _steps(beats, told, live).items()
        if reached_step(progress[job_id], steps) >= progress[job_id].declared_steps
    }
    for position in list(told) if ending else ():
        if not ending.isdisjoint(_steps(beats, {position: told[position]}, live)):
            quiet[position] = False
            del told[position]


def _store_reports(
    session: Session,
    beats: Sequence[Beat],
    told: Mapping[int, Sequence[Report]],
    live: Mapping[str, Mapping[str, LiveProcess]],
    progress: Mapping[str, JobProgress],
    at_s: float,
) -> None:
    rows = Rows()
    for position, reports in told.items():
        beat = beats[position].heartbeat
        rows.add(reports, live[beat.agent_id], at_s, beat.clock_s - at_s)
    rows.store(session)
    reached = {
        job_id: reached_step(progress[job_id], steps) for job_id, steps in _steps(beats, told, live).items()
    }
    agent_queries.set_reported_steps(
        session,
        {job_id: step for job_id, step in reached.items() if step > progress[job_id].reported_steps},
    )


def _steps(
    beats: Sequence[Beat],
    told: Mapping[int, Sequence[Report]],
    live: Mapping[str, Mapping[str, LiveProcess]],
) -> dict[str, list[tuple[int, int]]]:
    """Job → (generation, step) of what is told of it."""
    steps: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for position, reports in told.items():
        processes = live[beats[position].heartbeat.agent_id]
        for report in reports:
            if isinstance(report, StepReport):
                process = processes[report.key]
                steps[process.job_id].append((process.generation, report.step))
    return steps


def _following(agents: Mapping[str, AgentRecord], beats: Sequence[Beat]) -> list[bool]:
    """Whether each is the next of its agent; of copies that come together one is."""
    followed: set[str] = set()
    following = []
    for beat in beats:
        agent = agents.get(beat.heartbeat.agent_id)
        follows = agent is not None and is_next(agent, beat.heartbeat, beat.answered_s)
        following.append(follows and beat.heartbeat.agent_id not in followed)
        if follows:
            followed.add(beat.heartbeat.agent_id)
    return following


def _is_quiet(beat: Beat, agent: AgentRecord | None, live: Mapping[str, LiveProcess]) -> bool:
    if agent is None or agent.token_id != beat.token_id or agent.revoked_at_s is not None:
        return False
    if agent.measures_links != (LINK_TESTS in beat.abilities):
        return False
    told = beat.heartbeat
    if told.link_tests:
        return False
    if any(
        isinstance(report, CheckpointReport) or report.key not in live
        for report in told.reports
        if report.seq > agent.reports_stored
    ):
        return False
    for report in told.processes:
        process = live.get(report.key)
        if process is None or process.state != report.state.value or process.state in ENDED_PROCESS_STATES:
            return False
    named = {report.key for report in told.processes}
    return all(
        process.state in ENDED_PROCESS_STATES or (process.state == PENDING and process.desired)
        for key, process in live.items()
        if key not in named
    )


def _is_wanted(process: LiveProcess) -> bool:
    return process.desired and process.state not in ENDED_PROCESS_STATES
