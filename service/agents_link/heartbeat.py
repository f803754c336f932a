"""A heartbeat: report up, desired state down, in one transaction.

Those that move nothing are stored together (`quiet_beats`); for any other:

1. the agent is alive, by the server's clock; nodes of its that were lost are back
2. its reports are stored, each once
3. what it says of its processes moves their rows, and what it has measured of links is kept
4. the jobs of these processes make the moves that are due
5. the answer is everything that should run on its nodes now
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agents.protocol import (
    LINK_TESTS,
    Heartbeat,
    HeartbeatReply,
    LinkTest,
    NodeIdentity,
    ProcessReport,
    ProcessState,
    StageProcess,
)
from scheduler.job import LIVE_JOB_STATES, JobState
from service import link_measurements, node_identity, progress, topics
from service.access import Credential
from service.agent_clocks import is_next, newest
from service.agents_link import reports
from service.causes import FORGOTTEN
from service.db import agent_queries
from service.db.records import AgentRecord, ProcessRecord
from service.db.session import Session
from service.errors import ForbiddenError, NotFoundError
from service.lifecycle import (
    ENDED_PROCESS_STATES,
    LOST,
    PENDING,
    Moment,
    NodeState,
    can_move_process,
    move_node,
    move_process,
)
from service.progress import Rules
from service.quiet_beats import Beat, Quiet, stamp_quiet
from service.services import Services
from service.settings import Settings

NEVER_STARTED = "never-started"
MAX_DESIRED = 4096


@dataclass(frozen=True, slots=True)
class Stored:
    """What a heartbeat came to."""

    reports_stored: int
    desired: tuple[StageProcess, ...]
    forget: tuple[str, ...]
    at_s: float
    """As which time of its agent's last heartbeat it is stored."""
    is_next: bool
    """No answer of a later one has reached its agent."""
    replan: bool
    """Capacity or a job came back to planning, or a link is not what it was."""
    link_tests: tuple[LinkTest, ...] = ()


async def heartbeat(
    services: Services,
    credential: Credential,
    beat: Heartbeat,
    abilities: frozenset[str] = frozenset(),
    answered_s: float | None = None,
) -> HeartbeatReply:
    """Store a heartbeat, answer what should run, and wake whom it concerns.

    Raises NotFoundError for an agent that has not joined (it should join again), ForbiddenError for another's token or
    identity, one that is for joining only, and an agent that was revoked. `abilities` are what the agent can beside the
    rest of its protocol: an agent without them is told nothing of them. `answered_s`: `agent_clocks.is_next`.
    """
    if credential.single_use:
        raise ForbiddenError(
            f"agent {beat.agent_id}: this token is for joining; show the identity that was given for it"
        )
    now_s = services.clock.now()
    quiet = await services.beats.do(
        Beat(credential.token_id, beat, abilities, answered_s), lambda beats: _stamp(services, beats)
    )
    if quiet is None:
        stored = await _store(services, credential, beat, abilities, answered_s, now_s)
    else:
        stored = Stored(
            quiet.reports_stored,
            quiet.desired[:MAX_DESIRED],
            (),
            at_s=quiet.at_s,
            is_next=quiet.is_next,
            replan=False,
            link_tests=quiet.link_tests,
        )
    services.metrics.heartbeats.inc()
    # Not to a late copy: the secret that its agent has been given since would be void.
    renewed = await node_identity.renewed(services, credential) if stored.is_next else None
    return HeartbeatReply(
        desired=list(stored.desired),
        forget=list(stored.forget),
        reports_stored=stored.reports_stored,
        heartbeat_interval_s=services.pace.interval_s(services.settings),
        lease_s=services.settings.lease_s,
        server_time_s=stored.at_s,
        identity=None if renewed is None else NodeIdentity(token=renewed[0], expires_at_s=renewed[1]),
        link_tests=list(stored.link_tests) or None,
    )


async def _stamp(services: Services, beats: Sequence[Beat]) -> Sequence[Quiet | None]:
    now_s = services.clock.now()

    def work(session: Session) -> Sequence[Quiet | None]:
        services.pace.look(session, services.settings, now_s)
        return stamp_quiet(session, beats, services.launches, now_s)

    answers = await services.db.run(work)
    services.metrics.heartbeat_interval.set(services.pace.interval_s(services.settings))
    if any(answer is not None and answer.has_reports for answer in answers):
        await services.bus.publish(topics.REPORTS)
    return answers


async def _store(
    services: Services,
    credential: Credential,
    beat: Heartbeat,
    abilities: frozenset[str],
    answered_s: float | None,
    now_s: float,
) -> Stored:
    """One that brings news, or whose agent is not as it should be."""
    moment, rules = Moment(now_s, beat.agent_id), services.rules()

    def work(session: Session) -> Stored:
        stored = store_heartbeat(
            session,
            beat,
            credential=credential,
            moment=moment,
            rules=rules,
            abilities=abilities,
            answered_s=answered_s,
        )
        return _with_links(session, stored, beat, abilities, services.settings, moment)

    stored = await services.db.run(work)
    if stored.replan:
        await services.bus.publish(topics.PLANNING)
    if beat.reports or beat.processes:
        await services.bus.publish(topics.REPORTS)
    return stored


def store_heartbeat(
    session: Session,
    beat: Heartbeat,
    *,
    credential: Credential,
    moment: Moment,
    rules: Rules,
    abilities: frozenset[str] = frozenset(),
    answered_s: float | None = None,
) -> Stored:
    """The transaction of `heartbeat`, links aside."""
    agent = _agent(session, beat.agent_id, credential, moment)
    # 1. alive
    nodes = agent_queries.nodes_of_agent(session, beat.agent_id)
    back = [node for node in nodes if node.state == NodeState.LOST]
    for node in back:
        move_node(session, node, NodeState.READY, moment)
    if back:
        progress.reopen_rejected(session, moment)
    # 2. reports
    node_ids = {node.node_id for node in nodes}
    live = {process.key: process for process in agent_queries.live_processes_on(session, node_ids)}
    named = {report.key for report in [*beat.processes, *beat.reports]} - live.keys()
    older = agent_queries.processes_with_keys(session, named)
    known = live | {key: process for key, process in older.items() if process.node_id in node_ids}
    new = [report for report in beat.reports if report.seq > agent.reports_stored]
    complete = reports.store(session, new, known, moment, beat.clock_s - moment.at_s)
    reports_stored = max([agent.reports_stored, *(report.seq for report in new)])
    # 3. processes
    moved = _move_processes(session, beat.processes, known, moment)
    follows = is_next(agent, beat, answered_s)
    if follows:
        moved |= _unmentioned(session, beat, live, moment)
    boot_id, clock_offset_s = newest(agent, beat.boot_id, beat.clock_s, moment.at_s)
    agent_queries.heard(
        session,
        beat.agent_id,
        boot_id=boot_id,
        reports_stored=reports_stored,
        clock_offset_s=clock_offset_s,
        at_s=moment.at_s,
        measures_links=LINK_TESTS in abilities,
    )
    # 4. jobs
    after = [progress.advance(session, job_id, moment, rules) for job_id in sorted(complete | moved)]
    # 5. answer
    return Stored(
        reports_stored=reports_stored,
        # What nobody moved is as it was read above: most heartbeats bring no news.
        desired=_desired(agent_queries.live_processes_on(session, node_ids) if after else live.values()),
        forget=_forget(session, beat.processes, node_ids),
        at_s=moment.at_s,
        is_next=follows,
        replan=bool(back) or any(JobState(job.state) not in LIVE_JOB_STATES for job in after),
    )


def _with_links(
    session: Session,
    stored: Stored,
    beat: Heartbeat,
    abilities: frozenset[str],
    settings: Settings,
    moment: Moment,
) -> Stored:
    """The same, with what the agent has measured stored, and what it is to measure now."""
    can_measure = LINK_TESTS in abilities
    has_changed = link_measurements.store(session, beat.agent_id, beat.link_tests or (), settings, moment)
    tests = link_measurements.wanted(session, {beat.agent_id}) if can_measure else {}
    return replace(
        stored, replan=stored.replan or has_changed, link_tests=tuple(tests.get(beat.agent_id, ()))
    )


def _agent(session: Session, agent_id: str, credential: Credential, moment: Moment) -> AgentRecord:
    agent = agent_queries.agent(session, agent_id)
    if credential.agent_id not in (None, agent_id):
        raise ForbiddenError(f"agent {agent_id}: this token is the identity of another agent")
    if agent is None:
        raise NotFoundError(f"agent {agent_id} has not joined: join first")
    if agent.revoked_at_s is not None:
        raise ForbiddenError(f"agent {agent_id} was revoked")
    if agent.token_id != credential.token_id and not node_identity.accept(session, agent, credential, moment):
        raise ForbiddenError(f"agent {agent_id} joined with another token: join again with this one")
    return agent


def _move_processes(
    session: Session, told: list[ProcessReport], known: Mapping[str, ProcessRecord], moment: Moment
) -> set[str]:
    """Take over what the agent says; ids of the jobs concerned. Late and repeated news change nothing."""
    jobs = set()
    for report in told:
        process = known.get(report.key)
        if process is None:
            continue
        if not can_move_process(process.state, report.state.value):
            continue
        jobs.add(process.job_id)
        move_process(
            session,
            process,
            report.state.value,
            moment,
            data={"exit_code": report.exit_code, "cause": report.cause},
            exit_code=report.exit_code,
            cause=report.cause,
            detail=report.detail,
            last_lines=[line.replace("\x00", "\N{REPLACEMENT CHARACTER}") for line in report.last_lines],
        )
    return jobs


def _unmentioned(
    session: Session, beat: Heartbeat, live: Mapping[str, ProcessRecord], moment: Moment
) -> set[str]:
    """An agent names every process that it has: those it does not name it never started, or has lost."""
    named = {report.key for report in beat.processes}
    jobs = set()
    for key in sorted(live.keys() - named):
        process = live[key]
        if process.state in ENDED_PROCESS_STATES:
            continue
        if process.state == PENDING:
            if process.desired:
                continue  # it will be told of it in this answer
            move_process(session, process, ProcessState.STOPPED.value, moment, cause=NEVER_STARTED)
        else:
            move_process(session, process, LOST, moment, cause=FORGOTTEN)
        jobs.add(process.job_id)
    return jobs


def _desired(live: Iterable[ProcessRecord]) -> tuple[StageProcess, ...]:
    wanted = [process for process in live if process.desired and process.state not in ENDED_PROCESS_STATES]
    return tuple(StageProcess.model_validate(process.launch) for process in wanted[:MAX_DESIRED])


def _forget(session: Session, told: list[ProcessReport], node_ids: set[str]) -> tuple[str, ...]:
    """Ends that are stored, and keys that never were this agent's to run, once they have ended."""
    ended = [report.key for report in told if report.state.value in ENDED_PROCESS_STATES]
    if not ended:
        return ()
    stored = agent_queries.processes_with_keys(session, ended)
    return tuple(
        key
        for key in ended
        if key not in stored
        or stored[key].node_id not in node_ids
        or stored[key].state in ENDED_PROCESS_STATES
    )
